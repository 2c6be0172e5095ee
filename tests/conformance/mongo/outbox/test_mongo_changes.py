"""MongoDB's changes carry the before and after image of every write."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mediator.model.change import Change
from mediator.model.operators import APPLICABLE, Operator, OperatorCall
from mediator.schema.types import FieldType
from mediator.stores.mongo import MongoStore
from mediator.stores.port import (
    Fragment,
    Status,
    WriteKind,
)
from tests.conformance.mongo.outbox.relaying import (
    EPOCH,
    FIELDS,
    GROUPS,
    increment,
    json_values,
    relay,
)
from tests.conformance.mongo.records import make_write, write_one

# Before and after


async def test_every_kind_of_write_records_its_before_and_after_image(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    moment = datetime(2024, 1, 2, tzinfo=UTC)
    results = [
        await write_one(
            store, make_write(fragment, WriteKind.CREATE, id_, operation="a", values={"n": 1})
        ),
        await write_one(
            store,
            make_write(
                fragment,
                WriteKind.UPDATE,
                id_,
                operation="b",
                groups=("main",),
                values={"t": moment},
                unset=("n",),
                operators=(OperatorCall("d", Operator.INC, Decimal("1.50")),),
            ),
        ),
        await write_one(
            store, make_write(fragment, WriteKind.REPLACE, id_, operation="c", values={"s": "x"})
        ),
        await write_one(store, make_write(fragment, WriteKind.DELETE, id_, operation="d")),
        await write_one(store, make_write(fragment, WriteKind.REPLACE, id_, operation="e")),
    ]
    changes = {change.id: change for change in await relay(store, fragment, id_)}
    images = {id_: (c.kind, c.before, c.after) for id_, c in changes.items()}
    timed = {"t": "2024-01-02T00:00:00Z", "d": "1.5"}
    assert images == {
        "a:main": ("create", None, {"n": 1}),
        "a:side": ("create", None, {}),
        "b:main": ("update", {"n": 1}, timed),
        "c:main": ("replace", timed, {}),
        "c:side": ("replace", {}, {"s": "x"}),
        "d:main": ("delete", {}, None),
        "d:side": ("delete", {"s": "x"}, None),
        "e:main": ("create", None, {}),
        "e:side": ("create", None, {}),
    }
    for operation, result in zip("abcde", results, strict=True):
        group = changes[f"{operation}:main"]
        assert group.version == result.versions["main"]
        assert group.time_us <= group.version
        assert (group.database, group.class_name, group.object_id) == (
            "d",
            fragment.class_name,
            id_,
        )


async def test_a_version_that_is_not_the_clock_is_in_the_change(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    config = replace(store.config)
    await write_one(store, make_write(fragment, WriteKind.REPLACE, id_))
    slow_store = MongoStore(config, SlowClock())
    await slow_store.open()
    result = await write_one(slow_store, increment(fragment, id_))
    await slow_store.close()
    changes = await relay(store, fragment, id_)
    assert changes[-1].version == result.versions["main"] == changes[0].version + 1
    assert changes[-1].time_us < changes[0].time_us


class SlowClock:
    """An hour slow."""

    def now(self) -> float:
        return datetime.now(UTC).timestamp() - 3600

    def monotonic(self) -> float:
        return 0.0


# Any sequence of writes with relays at any point


_MOMENTS = st.integers(-(10**12), 10**12).map(lambda us: EPOCH + timedelta(microseconds=us))


_DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-9, max_value=9)


_FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=32).map(lambda x: x + 0.0)


_INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)


_KEYS = st.sampled_from(["a", "a.b", "$inc", "%", "é\ue000"])


_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "n": _INTEGERS,
    "f": _FLOATS,
    "d": _DECIMALS,
    "t": _MOMENTS,
    "b": st.binary(max_size=3),
    "o": st.booleans(),
    "doc": st.dictionaries(_KEYS, _INTEGERS | st.none() | st.lists(st.text(max_size=2))),
    "l": st.lists(_DECIMALS, max_size=3),
    "u": st.sets(_MOMENTS, max_size=3).map(sorted),
    "m": st.dictionaries(_KEYS, st.binary(max_size=2), max_size=2),
    "s": st.text(st.characters(codec="utf-8"), max_size=3),
}


_ARGUMENTS = {"l": _DECIMALS, "u": _MOMENTS}


@st.composite
def calls(draw: st.DrawFn, name: str) -> OperatorCall:
    type_ = FIELDS[name].type
    applicable = [o for o in Operator if type_ in APPLICABLE[o] and o not in {"set", "unset"}]
    operator = draw(st.sampled_from(applicable))
    if operator in {Operator.POP, Operator.SHIFT, Operator.NOW}:
        return OperatorCall(name, operator, True)
    if operator is Operator.REMOVE and type_ is FieldType.MAP:
        return OperatorCall(name, operator, draw(_KEYS))
    return OperatorCall(name, operator, draw(_ARGUMENTS.get(name, _VALUES[name])))


_OPERABLE = ("n", "f", "d", "t", "l", "u", "m")


@st.composite
def steps(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from([*WriteKind, WriteKind.UPDATE, WriteKind.UPDATE]))
    names = draw(st.lists(st.sampled_from(sorted(FIELDS)), unique=True, max_size=4))
    step: dict[str, Any] = {"kind": kind}
    if kind is WriteKind.DELETE:
        return step
    uses = {name: draw(st.sampled_from(["value", "null", "unset", "call"])) for name in names}
    is_update = kind is WriteKind.UPDATE
    step["values"] = {
        name: None if use == "null" else draw(_VALUES[name])
        for name, use in uses.items()
        if use in {"value", "null"} or not is_update
    }
    if is_update:
        step["unset"] = tuple(name for name, use in uses.items() if use == "unset")
        operator_fields = [name for name, use in uses.items() if use == "call"]
        step["operators"] = tuple(
            draw(calls(name)) for name in operator_fields if name in _OPERABLE
        )
        touched = {*step["values"], *step["unset"], *(c.field for c in step["operators"])}
        groups = tuple(g for g, members in GROUPS.items() if touched & set(members))
        step["groups"] = groups or ("main",)
    return step


def merge(state: dict[str, Any] | None, change: Change) -> dict[str, Any] | None:
    """Apply a change to a state after comparing the state with the before image."""
    members = GROUPS[change.group]
    group_state = None if state is None else {n: v for n, v in state.items() if n in members}
    if change.kind == "update":
        assert group_state is not None
        assert change.before is not None
        assert change.after is not None
        touched = {*change.before, *change.after}
        assert {n: v for n, v in group_state.items() if n in touched} == change.before
        group_state = {n: v for n, v in group_state.items() if n not in touched} | dict(
            change.after
        )
    else:
        assert (group_state or None) == (change.before or None)
        group_state = None if change.after is None else dict(change.after)
    if group_state is None:
        return None
    return {n: v for n, v in (state or {}).items() if n not in members} | group_state


def replay(changes: Sequence[Change]) -> dict[str, Any] | None:
    """Return the state of a feed consumer that stores each group separately."""
    groups: dict[str, dict[str, Any] | None] = dict.fromkeys(GROUPS)
    versions: defaultdict[str, int] = defaultdict(int)
    for change in changes:
        groups[change.group] = merge(groups[change.group], change)
        assert change.version > versions[change.group]
        versions[change.group] = change.version
    assert len({group is None for group in groups.values()}) == 1
    if groups["main"] is None:
        return None
    return {name: value for group in groups.values() for name, value in (group or {}).items()}


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(batches=st.lists(st.lists(steps(), min_size=1, max_size=8), min_size=1, max_size=4))
async def test_replayed_changes_equal_the_stored_values(
    store: MongoStore, fragment: Fragment, batches: list[list[dict[str, Any]]]
) -> None:
    id_ = uuid.uuid4().hex
    applied: list[str] = []
    changes: list[Change] = []
    for batch in batches:
        writes = [make_write(fragment, id_=id_, **step) for step in batch]
        for write, result in zip(writes, await store.write(writes), strict=True):
            if result.status is Status.APPLIED:
                applied += [f"{write.operation}:{group}" for group in write.groups]
        changes += await relay(store, fragment, id_)
        assert replay(changes) == await json_values(store, fragment, id_)
    assert [change.id for change in changes] == applied
