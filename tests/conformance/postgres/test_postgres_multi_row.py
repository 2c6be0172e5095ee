"""Multi-row writes of PostgreSQL: each write has the result that it has on its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from typing import Any, Final

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mediator.model.operators import Operator, OperatorCall
from mediator.schema.limits import INTEGER_MAX
from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.stores.port import Fragment, Status, Write, WriteKind, WriteResult
from mediator.stores.postgres import PostgresStore
from tests.conformance.postgres.records import ADD, fragment_of, make_write, outbox, put

TOKEN: Final = "t"
FIELDS: Final = (
    Field("n", FieldType.INTEGER),
    Field("operation", FieldType.FLOAT),
    Field("g", FieldType.MAP, items=FieldType.DECIMAL),
    Field("tags", FieldType.LIST, items=FieldType.STRING, max_length=2),
    Field("s", FieldType.STRING, group="s"),
    Field("d", FieldType.DOCUMENT, group="s"),
)
CHANGES: Final[dict[str, dict[str, Any]]] = {
    "count": {"operators": (ADD,), "returning": ("n",)},
    "overflow": {"operators": (OperatorCall("n", Operator.INC, INTEGER_MAX),), "returning": ()},
    "infinite": {"operators": (OperatorCall("operation", Operator.MUL, 1e308),)},
    "push": {"operators": (OperatorCall("tags", Operator.PUSH, "x"),), "returning": ("tags",)},
    "put": {
        "operators": (OperatorCall("g", Operator.PUT, {"a": Decimal(1)}), ADD),
        "returning": (),
    },
    "set": {"values": {"s": "text", "d": {"a": [1, None]}}, "groups": ("s",)},
    "null": {"values": {"s": None, "d": None}, "groups": ("s",), "returning": ("s", "d")},
    "list": {"values": {"tags": ["x", "y"]}, "operators": (ADD,)},
    "unset": {"unset": ("s", "n"), "groups": ("main", "s"), "returning": ()},
    "expect": {"values": {"n": 5}, "expect": {"main": 1}},
    "remember": {"operators": (ADD,), "remember": "f"},
    "delete": {},
    "replace": {"values": {"n": 1, "s": None}},
}
KINDS: Final = {"delete": WriteKind.DELETE, "replace": WriteKind.REPLACE}
STEPS: Final = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "null", "absent", "deleted", "held", "fenced"]),
        st.sampled_from(sorted(CHANGES)),
    ),
    min_size=2,
    max_size=40,
)


@pytest.fixture(scope="module")
async def pair(store: PostgresStore) -> AsyncIterator[tuple[Fragment, Fragment]]:
    """Two classes: one for a batch of writes, one for the same writes one by one."""
    fragments = fragment_of(*FIELDS), fragment_of(*FIELDS)
    for fragment in fragments:
        await store.prepare(fragment)
    yield fragments
    for fragment in fragments:
        await store.drop(fragment)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
async def test_a_batch_has_the_results_of_single_writes(
    store: PostgresStore, admin: Any, pair: tuple[Fragment, Fragment], steps: list[tuple[str, str]]
) -> None:
    many, single = pair
    for fragment in pair:
        await _set_up(store, admin, fragment)
    batch = [_write(many, *step) for step in steps]
    single_writes = [_write(single, *step) for step in steps]
    # The batch runs writes of one shape together; single calls share nothing.
    results = await store.write(batch, TOKEN)
    expected = [(await store.write([call], TOKEN))[0] for call in single_writes]
    assert list(map(_comparable, results)) == list(map(_comparable, expected))
    changes = await _logged_changes(admin, many, batch)
    assert changes == await _logged_changes(admin, single, single_writes)
    await _check_versions(admin, many, batch, results)


async def test_updates_of_one_batch_are_one_statement(
    store: PostgresStore, subject: Fragment, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [f"r{number}" for number in range(20)]
    await store.write([make_write(subject, id_, WriteKind.REPLACE, values={"n": 0}) for id_ in ids])
    calls = [
        make_write(subject, id_, WriteKind.UPDATE, operators=(ADD,), returning=("n",))
        for id_ in [*ids, "r7", "r3", "r7"]
    ]
    statements: list[tuple[Any, ...]] = []
    for name in ("execute", "fetch", "fetchmany", "fetchrow"):
        monkeypatch.setattr(asyncpg.Connection, name, _recording_method(name, statements))
    results = await store.write(calls)
    [(_, executions)] = statements
    assert [len(ids) for ids, *_ in executions] == [20, 2, 1]
    assert [result.values["n"] for result in results] == [*[1] * 20, 2, 2, 3]


def _recording_method(name: str, statements: list[tuple[Any, ...]]) -> Callable[..., Any]:
    method = getattr(asyncpg.Connection, name)

    async def record_call(self: Any, *args: Any) -> Any:
        statements.append(args)
        return await method(self, *args)

    return record_call


async def _set_up(store: PostgresStore, admin: Any, fragment: Fragment) -> None:
    statements = store.statements
    table = statements.records(fragment).table
    await admin.execute(f'DELETE FROM "{table.schema}"."{table.name}"')
    for id_ in ("a", "b", "held", "fenced", "deleted"):
        await put(store, fragment, id_, n=0, operation=2.0, s="before", g={"b": Decimal(2)})
    await put(store, fragment, "null", n=None, s=None, d=None, tags=None)
    await store.write([make_write(fragment, "deleted", WriteKind.DELETE)])
    await store.lock([(fragment, "held")], "other")
    await store.fence(fragment, "fenced", TOKEN)


def _write(fragment: Fragment, id_: str, change: str) -> Write:
    return make_write(fragment, id_, KINDS.get(change, WriteKind.UPDATE), **CHANGES[change])


def _comparable(result: WriteResult) -> tuple[Any, ...]:
    groups = sorted(result.versions)
    return result.status, result.created, groups, result.values, result.failure, result.intent


async def _logged_changes(
    admin: Any, fragment: Fragment, calls: list[Write]
) -> dict[str, list[Any]]:
    """Return the logged changes of each object, in order, with the positions of their writes."""
    positions = {call.operation: position for position, call in enumerate(calls)}
    changes: dict[str, list[Any]] = {}
    for row in await outbox(admin, fragment):
        position = positions.get(row["change"].partition(":")[0])
        if position is not None:
            images = [row["before"], row["before_nulls"], row["after"], row["after_nulls"]]
            entry = position, row["group"], row["kind"], *images
            changes.setdefault(row["object"], []).append(entry)
    return changes


async def _check_versions(
    admin: Any, fragment: Fragment, calls: list[Write], results: list[WriteResult]
) -> None:
    """Check that versions rise, and that each result has the versions of its changes."""
    rows = {row["change"]: row for row in await outbox(admin, fragment)}
    last: dict[tuple[str, str], int] = {}
    for call, result in zip(calls, results, strict=True):
        for group in call.groups if result.status is Status.APPLIED else ():
            version = rows[f"{call.operation}:{group}"]["version"]
            if call.kind is not WriteKind.DELETE:
                assert result.versions[group] == version
            assert version > last.get((call.id, group), 0)
            last[call.id, group] = version
