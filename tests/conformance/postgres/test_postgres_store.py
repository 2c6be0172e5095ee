"""What is particular to PostgreSQL: locks, the outbox, pools, statements, tables that change."""

from __future__ import annotations

import asyncio
import json
import math
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from unittest.mock import AsyncMock

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mediator.model.apply import Refused, apply_operator
from mediator.model.operators import APPLICABLE, Operator, OperatorCall, OperatorFailure
from mediator.schema.tree import MISSING, Field
from mediator.schema.types import SCALARS, FieldType
from mediator.stores.port import (
    RETENTION_S,
    Fragment,
    Read,
    Status,
    StoreError,
    StoreRefused,
    StoreTimeout,
    StoreUnavailable,
    SystemConfig,
    Write,
    WriteKind,
    WriteResult,
)
from mediator.stores.postgres import PostgresStore

NAMESPACE = f"portolan_test_{uuid.uuid4().hex[:12]}"
ADD = OperatorCall("n", Operator.INC, 1)


@pytest.fixture(scope="session")
async def config(postgresql_config: SystemConfig) -> AsyncIterator[SystemConfig]:
    yield replace(postgresql_config, namespace=NAMESPACE, deadline_s=10.0, durability="second")
    admin = await asyncpg.connect(postgresql_config.url)
    await admin.execute(f'DROP SCHEMA IF EXISTS "{NAMESPACE}" CASCADE')
    await admin.close()


@pytest.fixture(scope="session")
async def store(config: SystemConfig) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(config)
    await store.open()
    yield store
    await store.close()


@pytest.fixture(scope="session")
async def admin(config: SystemConfig) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(config.url)
    yield connection
    await connection.close()


@pytest.fixture
async def subject(store: PostgresStore) -> AsyncIterator[Fragment]:
    fragment = fragment_of(Field("n", FieldType.INTEGER), Field("s", FieldType.STRING, group="s"))
    await store.prepare(fragment)
    yield fragment
    await store.drop(fragment)


def fragment_of(*fields: Field, name: str = "") -> Fragment:
    groups: dict[str, tuple[str, ...]] = {"main": ()}
    for field in fields:
        group = field.group or "main"
        groups[group] = (*groups.get(group, ()), field.name)
    class_name = name or f"c{uuid.uuid4().hex[:12]}"
    return Fragment("postgres", "d", class_name, {f.name: f for f in fields}, groups)


def write(fragment: Fragment, id_: str, kind: WriteKind, **what: Any) -> Write:
    operation, groups = what.pop("operation", uuid.uuid4().hex), what.pop("groups", None)
    every = tuple(fragment.groups)
    chosen = groups or (("main",) if kind is WriteKind.UPDATE else every)
    return Write(fragment, id_, kind, operation, chosen, **what)


async def one(store: PostgresStore, call: Write) -> WriteResult:
    return (await store.write([call]))[0]


async def put(store: PostgresStore, fragment: Fragment, id_: str, **values: Any) -> WriteResult:
    return await one(store, write(fragment, id_, WriteKind.REPLACE, values=values))


async def get(store: PostgresStore, fragment: Fragment, id_: str) -> Any:
    record = (await store.read([Read(fragment, id_)]))[0]
    return None if record is None else dict(record.values)


async def outbox(admin: Any, fragment: Fragment) -> list[Any]:
    rows: list[Any] = await admin.fetch(
        f'SELECT * FROM "{NAMESPACE}"._outbox WHERE class = $1 ORDER BY xid, seq',
        fragment.class_name,
    )
    return rows


def table_of(fragment: Fragment) -> str:
    return f'"{NAMESPACE}"."{fragment.database}.{fragment.class_name}"'


# Concurrency


async def test_compare_and_set_by_32_tasks(store: PostgresStore, subject: Fragment) -> None:
    seen = (await put(store, subject, "x", n=0)).versions["main"]

    async def increment() -> None:
        version, value = seen, 0
        while True:
            call = write(
                subject, "x", WriteKind.UPDATE, values={"n": value + 1}, expect={"main": version}
            )
            result = await one(store, call)
            if result.status is Status.APPLIED:
                return
            assert result.status is Status.CONFLICT
            (record,) = await store.read([Read(subject, "x")])
            assert record is not None
            version, value = record.versions["main"], int(str(record.values["n"]))

    await asyncio.gather(*(increment() for _ in range(32)))
    assert await get(store, subject, "x") == {"n": 32}


async def test_counters_with_their_changes(
    store: PostgresStore, subject: Fragment, admin: Any
) -> None:
    await put(store, subject, "x", n=0)
    calls = [write(subject, "x", WriteKind.UPDATE, operators=(ADD,)) for _ in range(60)]
    alone, together = calls[:30], [calls[30:45], calls[45:]]
    await asyncio.gather(
        *(store.write([call]) for call in alone), *(store.write(batch) for batch in together)
    )
    assert await get(store, subject, "x") == {"n": 60}
    changes = [row for row in await outbox(admin, subject) if row["kind"] == "update"]
    assert sorted(row["change"] for row in changes) == sorted(f"{c.operation}:main" for c in calls)
    by_version = sorted(changes, key=lambda row: row["version"])
    steps = [(json.loads(r["before"])["n"], json.loads(r["after"])["n"]) for r in by_version]
    assert steps == [(n, n + 1) for n in range(60)]
    assert changes == by_version
    assert len({row["version"] for row in changes}) == 60


async def test_one_of_many_creations_wins(store: PostgresStore, subject: Fragment) -> None:
    for id_ in ("new", "deleted"):
        if id_ == "deleted":
            await put(store, subject, id_, n=0)
            await one(store, write(subject, id_, WriteKind.DELETE))
        calls = [write(subject, id_, WriteKind.CREATE, values={"n": n}) for n in range(16)]
        results = await asyncio.gather(*(one(store, call) for call in calls))
        summary = Counter(result.status for result in results)
        assert summary == {Status.APPLIED: 1, Status.EXISTS: 15}
        winner = next(i for i, r in enumerate(results) if r.status is Status.APPLIED)
        assert await get(store, subject, id_) == {"n": winner}


async def test_one_of_many_replacements_creates(
    store: PostgresStore, subject: Fragment, admin: Any
) -> None:
    results = await asyncio.gather(*(put(store, subject, "x", n=n) for n in range(16)))
    assert sum(result.created for result in results) == 1
    assert len({result.creation_version for result in results}) == 1
    changes = sorted(
        (row for row in await outbox(admin, subject) if row["group"] == "main"),
        key=lambda row: row["version"],
    )
    assert changes[0]["before"] is None
    assert [json.loads(r["before"]) for r in changes[1:]] == [
        json.loads(r["after"]) for r in changes[:-1]
    ]


@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("kind", WriteKind)
async def test_one_operation_by_many_takes_effect_once(
    store: PostgresStore, subject: Fragment, admin: Any, kind: WriteKind, conditional: bool
) -> None:
    what: dict[str, Any] = {"operators": (ADD,)} if kind is WriteKind.UPDATE else {}
    if kind in (WriteKind.CREATE, WriteKind.REPLACE):
        what = {"values": {"n": 1}}
    if kind is not WriteKind.CREATE:
        versions = (await put(store, subject, "x", n=0)).versions
        what |= {"expect": versions} if conditional else {}
    call = write(subject, "x", kind, remember="f", returning=(), **what)
    results = await asyncio.gather(*(one(store, call) for _ in range(16)))
    assert Counter(r.status for r in results) == {Status.APPLIED: 1, Status.REPLAYED: 15}
    assert len({r.versions["main"] for r in results}) == 1
    assert [r.values for r in results] == [results[0].values] * 16
    mine = [r for r in await outbox(admin, subject) if r["change"] == f"{call.operation}:main"]
    assert len(mine) == 1


async def test_crossing_batches_keep_the_outbox_in_order(
    store: PostgresStore, subject: Fragment, admin: Any
) -> None:
    ids = [f"{i:02}" for i in range(20)]
    await store.write([write(subject, i, WriteKind.CREATE, values={"n": 0}) for i in ids])

    def batch(order: list[str]) -> list[Write]:
        adds = [write(subject, i, WriteKind.UPDATE, operators=(ADD,)) for i in order]
        sets = [write(subject, i, WriteKind.UPDATE, values={"s": i}, groups=("s",)) for i in order]
        return [call for pair in zip(adds, sets, strict=True) for call in pair]

    orders = [ids, ids[::-1], ids[10:] + ids[:10]] * 2
    results = await asyncio.gather(*(store.write(batch(order)) for order in orders))
    assert {r.status for batch_ in results for r in batch_} == {Status.APPLIED}
    assert [await get(store, subject, i) for i in ids] == [{"n": 6, "s": i} for i in ids]
    last: dict[tuple[str, str], int] = {}
    for row in await outbox(admin, subject):
        assert row["version"] > last.get((row["object"], row["group"]), 0)
        last[row["object"], row["group"]] = row["version"]


# Operators against the reference

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30)
VALUES: dict[FieldType, st.SearchStrategy[Any]] = {
    FieldType.STRING: TEXT,
    FieldType.REFERENCE: TEXT,
    FieldType.INTEGER: st.one_of(
        st.integers(-(2**63), 2**63 - 1), st.integers(-3, 3), st.just(2**63 - 1)
    ),
    FieldType.FLOAT: st.floats(allow_nan=False, allow_infinity=False).map(lambda x: x + 0.0),
    FieldType.DECIMAL: DECIMALS.map(lambda d: Decimal(f"{d:.28g}")),
    FieldType.BOOLEAN: st.booleans(),
    FieldType.TIMESTAMP: st.datetimes(timezones=st.just(UTC)),
    FieldType.BINARY: st.binary(max_size=8),
    FieldType.DOCUMENT: st.dictionaries(
        TEXT,
        st.one_of(st.none(), st.booleans(), st.integers(-9, 9), TEXT, st.lists(TEXT)),
        max_size=3,
    ),
}
PAIRS = [
    (operator, type_)
    for operator, types in APPLICABLE.items()
    for type_ in sorted(types)
    if operator not in (Operator.SET, Operator.UNSET, Operator.NOW)
]


def _values(field: Field) -> st.SearchStrategy[Any]:
    if field.items is None:
        return VALUES[field.type]
    items = VALUES[field.items]
    if field.type is FieldType.MAP:
        return st.dictionaries(TEXT.filter(bool), items, max_size=4)
    listed = st.lists(items, max_size=4)
    return listed.map(lambda i: sorted(set(i))) if field.type is FieldType.SET else listed


@st.composite
def _cases(draw: st.DrawFn) -> tuple[Field, Any, OperatorCall]:
    operator, type_ = draw(st.sampled_from(PAIRS))
    scalars = sorted(SCALARS)
    kinds = scalars if type_ is FieldType.SET else [*scalars, FieldType.DOCUMENT]
    items = None if type_ in SCALARS else draw(st.sampled_from(kinds))
    longest = draw(st.sampled_from([None, 3]))
    field = Field("f", type_, items=items, max_length=None if type_ in SCALARS else longest)
    present = draw(st.one_of(st.just(MISSING), st.none(), _values(field)))
    if operator in (Operator.POP, Operator.SHIFT):
        argument: Any = True
    elif operator is Operator.PUT:
        argument = draw(_values(field))
    elif operator is Operator.REMOVE and type_ is FieldType.MAP:
        argument = draw(TEXT.filter(bool))
    else:
        argument = draw(VALUES[items or type_])
    if isinstance(present, list) and present and operator in (Operator.REMOVE, Operator.ADD_TO_SET):
        argument = draw(st.sampled_from([argument, present[-1]]))
    return field, present, OperatorCall("f", operator, argument)


def _field_name(field: Field) -> str:
    return f"{field.type}_{field.items or ''}_{field.max_length or ''}".rstrip("_")


@pytest.fixture(scope="session")
async def operand(store: PostgresStore) -> AsyncIterator[Fragment]:
    """A class with a field of each type, items and length that a case may draw."""
    fields = []
    for _, type_ in PAIRS:
        for items in [None] if type_ in SCALARS else [*sorted(SCALARS), FieldType.DOCUMENT]:
            if type_ is not FieldType.SET or items is not FieldType.DOCUMENT:
                for longest in (None,) if type_ in SCALARS else (None, 3):
                    field = Field("", type_, items=items, max_length=longest)
                    fields.append(replace(field, name=_field_name(field)))
    fragment = fragment_of(*fields)
    await store.prepare(fragment)
    yield fragment
    await store.drop(fragment)


def _reference(field: Field, present: Any, call: OperatorCall) -> dict[str, Any] | OperatorFailure:
    try:
        value = apply_operator(field, present, call, datetime.now(UTC))
    except Refused as refused:
        return refused.failure
    return {} if value is MISSING else {field.name: value}


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=_cases())
async def test_operators_do_what_the_reference_does(
    store: PostgresStore, operand: Fragment, case: tuple[Field, Any, OperatorCall]
) -> None:
    drawn, present, drawn_call = case
    field = operand.fields[_field_name(drawn)]
    call = replace(drawn_call, field=field.name)
    before = {} if present is MISSING else {field.name: present}
    await put(store, operand, "x", **before)
    act = write(operand, "x", WriteKind.UPDATE, operators=(call,), returning=(field.name,))
    result = await one(store, act)
    expected = _reference(field, present, call)
    after = before if isinstance(expected, OperatorFailure) else expected
    assert result.status is (Status.APPLIED if after is expected else Status.REFUSED)
    assert result.failure == (None if after is expected else expected)
    assert result.values == (after if after is expected else {})
    assert await get(store, operand, "x") == after


@pytest.mark.parametrize(
    ("present", "operator", "argument"),
    [
        (1e308, Operator.INC, 1e308),
        (-1e308, Operator.MUL, 10.0),
        (1e-200, Operator.MUL, 1e-200),
        (5e-324, Operator.MUL, 0.5),
        (5e-324, Operator.MUL, 0.75),
        (2.2250738585072014e-308, Operator.MUL, 0.1),
        (1.7976931348623157e308, Operator.INC, -1.7976931348623157e308),
    ],
)
async def test_floats_at_their_ends(
    store: PostgresStore, operand: Fragment, present: float, operator: Operator, argument: float
) -> None:
    call = OperatorCall("float", operator, argument)
    calls = []
    for id_, value in (("edge", present), ("calm", 1.0)):
        await put(store, operand, id_, float=value)
        calls.append(write(operand, id_, WriteKind.UPDATE, operators=(call,)))
    exact = present * argument if operator is Operator.MUL else present + argument
    edge, calm = await store.write(calls)
    assert edge.status is (Status.APPLIED if math.isfinite(exact) else Status.REFUSED)
    stored = await get(store, operand, "edge")
    assert stored == {"float": exact if math.isfinite(exact) else present}
    assert calm.status is Status.APPLIED


# The outbox and what is remembered


async def test_changes_tell_before_and_after_exactly(store: PostgresStore, admin: Any) -> None:
    fragment = fragment_of(
        Field("d", FieldType.DECIMAL),
        Field("t", FieldType.TIMESTAMP),
        Field("l", FieldType.LIST, items=FieldType.DECIMAL),
        Field("z", FieldType.STRING, group="side"),
    )
    await store.prepare(fragment)
    precise = Decimal("1234567890123456789.012345678901234")
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
    await put(store, fragment, "x", d=precise, t=moment, l=[precise], z=None)
    call = write(fragment, "x", WriteKind.UPDATE, values={"d": None}, unset=("l",))
    await one(store, call)
    await one(store, write(fragment, "x", WriteKind.DELETE))
    rows = [
        {k: r[k] for k in ("kind", "group", "before", "before_nulls", "after", "after_nulls")}
        for r in await outbox(admin, fragment)
    ]
    for row in rows:
        row |= {k: row[k] and json.loads(row[k]) for k in ("before", "after")}
    full = {"d": str(precise), "l": [str(precise)], "t": "2026-01-02T03:04:05.678901+00:00"}
    main = [row for row in rows if row["group"] == "main"]
    assert [row["kind"] for row in main] == ["replace", "update", "delete"]
    assert (main[0]["before"], main[0]["after"]) == (None, full)
    assert main[1]["before"] == {"d": full["d"], "l": full["l"]}
    assert main[1]["after"] == {"d": None, "l": None}
    assert "d" in main[1]["after_nulls"]
    assert "l" not in main[1]["after_nulls"]
    assert (main[2]["before"], main[2]["after"]) == ({**full, "d": None, "l": None}, None)
    side = [row for row in rows if row["group"] == "side"]
    assert [row["kind"] for row in side] == ["replace", "delete"]
    await store.drop(fragment)


async def test_a_replay_returns_every_type_exactly(store: PostgresStore) -> None:
    values: dict[str, Any] = {
        "a_string": "é'\"\\\x01",
        "a_integer": 2**63 - 1,
        "a_float": 5e-324,
        "a_decimal": Decimal("9" * 34),
        "a_boolean": False,
        "a_timestamp": datetime.max.replace(tzinfo=UTC),
        "a_binary": b"\x00\xff",
        "a_document": {"deep": [1, {"x": None}]},
        "a_reference": "r",
    }
    fields = [Field(name, FieldType(name[2:])) for name in values]
    for type_ in (FieldType.LIST, FieldType.MAP):
        for name, value in list(values.items())[:9]:
            fields.append(Field(f"{type_}_{name}", type_, items=FieldType(name[2:])))
            values[f"{type_}_{name}"] = [value] if type_ is FieldType.LIST else {"k": value}
    fragment = fragment_of(*fields, Field("none", FieldType.STRING))
    await store.prepare(fragment)
    call = write(
        fragment, "x", WriteKind.CREATE, values={**values, "none": None}, returning=(), remember="f"
    )
    first, again = await one(store, call), await one(store, call)
    assert first.values == again.values == {**values, "none": None}
    for name, value in first.values.items():
        assert type(again.values[name]) is type(value)
    assert await get(store, fragment, "x") == {**values, "none": None}
    await store.drop(fragment)


async def test_reaping_takes_what_is_past_its_retention(
    config: SystemConfig, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(replace(config, namespace=f"{NAMESPACE}_reap"))
    await store.open()
    fragment = fragment_of(Field("n", FieldType.INTEGER))
    await store.prepare(fragment)
    for id_ in ("kept", "gone"):
        await one(store, write(fragment, id_, WriteKind.CREATE, values={"n": 1}, remember="f"))
    gone = await one(store, write(fragment, "gone", WriteKind.DELETE))
    assert await store.reap(100) == 0
    later_us = await store.time_us() + (RETENTION_S + 60) * 1_000_000
    monkeypatch.setattr(store, "time_us", AsyncMock(return_value=later_us))
    # Two remembered operations, one tombstone; two at most in the first round.
    assert await store.reap(2) == 2
    assert await store.reap(100) == 1
    assert await store.reap(100) == 0
    assert await get(store, fragment, "kept") == {"n": 1}
    again = await one(store, write(fragment, "gone", WriteKind.CREATE, values={"n": 2}))
    assert again.creation_version > gone.creation_version
    await store.close()
    await admin.execute(f'DROP SCHEMA "{NAMESPACE}_reap" CASCADE')


# Faults


async def test_a_lock_is_waited_for_until_the_deadline(
    config: SystemConfig, store: PostgresStore, subject: Fragment, admin: Any
) -> None:
    hasty = PostgresStore(replace(config, deadline_s=0.2, pool_size=2))
    await hasty.ping()
    await put(store, subject, "x", n=0)
    async with admin.transaction():
        await admin.execute(f"SELECT * FROM {table_of(subject)} FOR UPDATE")
        calls = [write(subject, "x", WriteKind.UPDATE, operators=(ADD,)) for _ in range(5)]
        summary = await asyncio.gather(*(one(hasty, c) for c in calls), return_exceptions=True)
        await _given_up(admin)  # the server gives up as well, while the lock is still held
    assert {type(error) for error in summary} == {StoreTimeout}
    # The connections were given up, not leaked: as many calls as the pool has work again.
    await asyncio.gather(*(hasty.read([Read(subject, "x")]) for _ in range(8)))
    await hasty.close()
    assert await get(store, subject, "x") == {"n": 0}


async def test_a_cancelled_call_leaks_nothing(
    config: SystemConfig, store: PostgresStore, subject: Fragment, admin: Any
) -> None:
    single = PostgresStore(replace(config, pool_size=1))
    await put(store, subject, "x", n=0)
    async with admin.transaction():
        await admin.execute(f"SELECT * FROM {table_of(subject)} FOR UPDATE")
        task = asyncio.create_task(
            one(single, write(subject, "x", WriteKind.UPDATE, operators=(ADD,)))
        )
        await _blocked(admin)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await single.ping()
    await single.close()


async def _waiting(admin: Any) -> int | None:
    """Process id of a session of ours that waits for a lock."""
    pid: int | None = await admin.fetchval(
        "SELECT pid FROM pg_locks JOIN pg_stat_activity USING (pid)"
        " WHERE NOT granted AND application_name = 'portolan' AND query LIKE $1",
        f"%{NAMESPACE}%",
    )
    await admin.execute("SELECT pg_stat_clear_snapshot()")
    return pid


async def _blocked(admin: Any) -> int:
    async with asyncio.timeout(10):
        while (pid := await _waiting(admin)) is None:
            pass
    return pid


async def _given_up(admin: Any) -> None:
    """Wait until no statement on our tables is running any more."""
    query = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE application_name = 'portolan' AND state = 'active' AND query LIKE $1"
    )
    async with asyncio.timeout(10):
        while await admin.fetchval(query, f"%{NAMESPACE}%"):
            await admin.execute("SELECT pg_stat_clear_snapshot()")


async def test_a_terminated_session_is_told_and_replaced(
    store: PostgresStore, subject: Fragment, admin: Any
) -> None:
    await put(store, subject, "x", n=0)
    call = write(subject, "x", WriteKind.UPDATE, operators=(ADD,))
    async with admin.transaction():
        await admin.execute(f"SELECT * FROM {table_of(subject)} FOR UPDATE")
        task = asyncio.create_task(one(store, call))
        await admin.execute("SELECT pg_terminate_backend($1)", await _blocked(admin))
        with pytest.raises(StoreUnavailable):
            await task
    assert await get(store, subject, "x") == {"n": 0}
    assert (await one(store, call)).status is Status.APPLIED


async def test_idle_sessions_that_were_terminated_are_not_used(
    config: SystemConfig, admin: Any
) -> None:
    other = PostgresStore(config)
    pid = await other._use(lambda c: c.fetchval("SELECT pg_backend_pid()"))
    await admin.execute("SELECT pg_terminate_backend($1, 5000)", pid)
    async with asyncio.timeout(5):
        while not other._pool._idle[0].is_closed():
            await admin.execute("SELECT 1")
    await other.ping()
    await other.close()


async def test_a_class_that_was_never_prepared(store: PostgresStore) -> None:
    fragment = fragment_of(Field("n", FieldType.INTEGER))
    with pytest.raises(StoreRefused):
        await get(store, fragment, "x")
    with pytest.raises(StoreRefused):
        await put(store, fragment, "x", n=1)


async def test_names_that_the_fragment_lacks(store: PostgresStore, subject: Fragment) -> None:
    bad = 'n" = 1; DROP TABLE x; --'
    calls: list[dict[str, Any]] = [
        {"values": {bad: 1}},
        {"unset": (bad,)},
        {"returning": (bad,)},
        {"groups": (bad,)},
        {"expect": {bad: 1}},
    ]
    for what in calls:
        with pytest.raises(StoreRefused):
            await one(store, write(subject, "x", WriteKind.UPDATE, **what))
    for call in (
        write(subject, "x", WriteKind.REPLACE, values={bad: 1}),
        write(subject, "x", WriteKind.UPDATE, values={"n": 2**63}),
        write(subject, "x\0", WriteKind.UPDATE, values={"n": 1}),
        write(subject, "x", WriteKind.UPDATE, values={"s": "\ud800"}),
    ):
        with pytest.raises(StoreRefused):
            await one(store, call)
    with pytest.raises(StoreRefused):
        await store.read([Read(subject, "x", (bad,))])


# Tables that change


async def test_replicas_prepare_at_once(config: SystemConfig) -> None:
    stores = [PostgresStore(replace(config, namespace=f"{NAMESPACE}_many")) for _ in range(3)]
    await asyncio.gather(*(store.open() for store in stores))
    fragment = fragment_of(Field("n", FieldType.INTEGER, index=True))
    await asyncio.gather(*(store.prepare(fragment) for store in stores * 2))
    assert await stores[0].count(fragment) == 0
    await stores[0]._use(lambda c: c.execute(f'DROP SCHEMA "{NAMESPACE}_many" CASCADE'))
    await asyncio.gather(*(store.close() for store in stores))


async def test_a_class_grows_shrinks_and_grows(store: PostgresStore) -> None:
    n, s = Field("n", FieldType.INTEGER, index=True), Field("s", FieldType.STRING, group="side")
    small, large = (fragment_of(*fields, name="growing") for fields in ((n,), (n, s)))
    await store.prepare(small)
    first = await put(store, small, "x", n=1)
    await store.prepare(large, small)
    (record,) = await store.read([Read(large, "x")])
    assert record is not None
    assert (record.values, record.versions) == ({"n": 1}, {**first.versions, "side": 0})
    values: dict[str, Any] = {"s": "earlier"}
    await one(store, write(large, "x", WriteKind.UPDATE, values=values, groups=("side",)))
    await put(store, large, "y", s=None)
    await store.prepare(large)
    assert await get(store, large, "x") == {"n": 1, "s": "earlier"}
    await store.prepare(small, large)
    assert await get(store, small, "x") == {"n": 1}
    again = replace(large, schema_version=4)
    await store.prepare(again, small)
    assert [await get(store, again, id_) for id_ in "xy"] == [{"n": 1}, {}]
    await put(store, again, "x", s="now")
    await store.prepare(replace(again), small)  # another replica, with what it had seen
    assert await get(store, again, "x") == {"s": "now"}
    await store.drop(again)


async def test_a_column_of_another_type_is_not_used(store: PostgresStore) -> None:
    number = fragment_of(Field("f", FieldType.INTEGER), name="retyped")
    text = fragment_of(Field("f", FieldType.STRING), name="retyped")
    await store.prepare(number)
    with pytest.raises(StoreRefused, match="bigint"):
        await store.prepare(text)
    await store.drop(number)


async def test_indexes_come_and_go(store: PostgresStore, admin: Any) -> None:
    count = "SELECT count(*) FROM pg_indexes WHERE tablename = 'd.indexed'"
    plain, indexed = (
        fragment_of(Field("s", FieldType.STRING, index=i), name="indexed") for i in (False, True)
    )
    await store.prepare(plain)
    before = await admin.fetchval(count)
    await store.prepare(indexed, plain)
    assert await admin.fetchval(count) == before + 1
    long = ["a" * 5_000, "a" * 5_000 + "b", "a" * 400, "é" * 3_000]
    for i, text in enumerate(long):
        await put(store, indexed, str(i), s=text)
    asked: dict[str, Any] = {"descending": True, "limit": 2}
    top = await store.ordered(indexed, "s", **asked)
    assert [record.id for record in top] == ["3", "1"]
    rest = await store.ordered(indexed, "s", after=(top[-1].values["s"], "1"), **asked)
    assert [record.id for record in rest] == ["0", "2"]
    await store.prepare(plain, indexed)
    assert await admin.fetchval(count) == before
    with pytest.raises(StoreRefused):
        await store.ordered(plain, "s", descending=False, limit=1)
    await store.drop(plain)


@pytest.mark.parametrize("descending", [False, True])
async def test_ordering_is_served_by_the_index(
    config: SystemConfig, store: PostgresStore, admin: Any, descending: bool
) -> None:
    fragment = fragment_of(Field("n", FieldType.INTEGER, index=True))
    await store.prepare(fragment)
    calls = [write(fragment, f"{i}", WriteKind.CREATE, values={"n": i % 7}) for i in range(200)]
    await store.write(calls)
    statement = store._statements.ordered(fragment, "n", ("n",), descending, 2)
    arguments = statement.arguments({"after": "5", "value": 3, "limit": 10})

    async def explain(connection: Any) -> str:
        return "\n".join(r[0] for r in await connection.fetch(f"EXPLAIN {text}", *arguments))

    text = statement.text
    plan = await store._use(explain)
    index = f"Index Scan{' Backward' if descending else ''} using"
    assert index in plan
    assert "Seq Scan" not in plan
    await store.drop(fragment)


# What is observed


@pytest.mark.parametrize(("durability", "seconds"), [("full", 0.0), ("second", 0.6)])
async def test_durability_is_observed_as_set(
    config: SystemConfig, durability: Any, seconds: float
) -> None:
    store = PostgresStore(replace(config, durability=durability))
    facts = await store.facts()
    await store.close()
    assert facts.server == "PostgreSQL"
    assert int(facts.version.split(".")[0]) >= 14
    delay_ms = float(facts.details["wal_writer_delay_ms"])
    expected = 0.0 if durability == "full" else 3 * delay_ms / 1000
    assert facts.durability_s == (expected if facts.details["fsync"] == "on" else None)
    assert facts.replicas == 0


async def test_a_user_that_may_not_make_the_namespace(config: SystemConfig, admin: Any) -> None:
    role = f"portolan_{uuid.uuid4().hex[:8]}"
    await admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'secret-word'")
    database, port, host = await admin.fetchrow(
        "SELECT current_database(), current_setting('port'),"
        " split_part(current_setting('unix_socket_directories'), ',', 1)"
    )
    url = f"postgresql://{role}:secret-word@/{database}?host={host}&port={port}"
    limited = PostgresStore(replace(config, url=url, namespace=f"{NAMESPACE}_none"))
    with pytest.raises(StoreError) as summary:
        await limited.open()
    assert isinstance(summary.value, StoreRefused)
    assert "secret-word" not in str(summary.value)
    await limited.close()
    await admin.execute(f"DROP ROLE {role}")


async def test_now_is_the_servers_clock_to_the_microsecond(
    store: PostgresStore, admin: Any
) -> None:
    fragment = fragment_of(Field("t", FieldType.TIMESTAMP))
    await store.prepare(fragment)
    await put(store, fragment, "x")
    before = await admin.fetchval("SELECT clock_timestamp()")
    now = OperatorCall("t", Operator.NOW, True)
    result = await one(
        store, write(fragment, "x", WriteKind.UPDATE, operators=(now,), returning=("t",))
    )
    after = await admin.fetchval("SELECT clock_timestamp()")
    summary = result.values["t"]
    assert isinstance(summary, datetime)
    assert before <= summary <= after
    assert summary.utcoffset() == timedelta(0)
    await store.drop(fragment)


@pytest.mark.parametrize("count", [1, 100])
async def test_intents_are_set_in_one_round_trip(
    store: PostgresStore, subject: Fragment, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    await store.write([write(subject, "r0", WriteKind.REPLACE)])
    sent = []
    for name in ("execute", "fetch", "fetchmany", "fetchrow"):
        method = getattr(asyncpg.Connection, name)

        async def counted(self: Any, *args: Any, method: Any = method) -> Any:
            sent.append(args)
            return await method(self, *args)

        monkeypatch.setattr(asyncpg.Connection, name, counted)
    found = await store.lock([(subject, f"r{n}") for n in range(count)], "m")
    assert len(sent) == 1
    assert [standing.intent for standing in found] == ["m"] * count
    assert found[0].creation_version is not None
    assert {standing.creation_version for standing in found[1:]} <= {None}
