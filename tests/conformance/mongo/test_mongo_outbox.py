"""MongoDB's outbox: every write is told, with its values before and after, and none is lost."""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from bson.int64 import Int64
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mediator.model.change import Change
from mediator.model.operators import APPLICABLE, Operator, OperatorCall
from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.stores.mongo import MongoStore
from mediator.stores.mongo.layout import layout_of
from mediator.stores.mongo.outbox.effect import json_encoder
from mediator.stores.mongo.outbox.entries import NAMED, OUTBOX, acknowledged_count, has_applied
from mediator.stores.mongo.outbox.replay import AT_ONCE
from mediator.stores.port import (
    Fragment,
    PendingChanges,
    Read,
    Status,
    StoreBusy,
    SystemConfig,
    UnrelayedChanges,
    Write,
    WriteKind,
    WriteResult,
)
from tests.conformance.real_stores import mongo_apart

NAMESPACE = "mongo_outbox"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

FIELDS = {
    "n": Field("n", FieldType.INTEGER),
    "f": Field("f", FieldType.FLOAT),
    "d": Field("d", FieldType.DECIMAL),
    "t": Field("t", FieldType.TIMESTAMP),
    "b": Field("b", FieldType.BINARY),
    "o": Field("o", FieldType.BOOLEAN),
    "doc": Field("doc", FieldType.DOCUMENT),
    "l": Field("l", FieldType.LIST, items=FieldType.DECIMAL, max_length=3),
    "u": Field("u", FieldType.SET, items=FieldType.TIMESTAMP, max_length=3),
    "m": Field("m", FieldType.MAP, items=FieldType.BINARY),
    "s": Field("s", FieldType.STRING, group="side"),
}
GROUPS = {"main": tuple(name for name in FIELDS if name != "s"), "side": ("s",)}


@pytest.fixture(scope="module")
async def store(mongodb_config: SystemConfig) -> AsyncIterator[MongoStore]:
    config = replace(mongodb_config, namespace=NAMESPACE, deadline_s=30.0)
    async with mongo_apart(config) as store:
        yield store


@pytest.fixture(scope="module")
async def fragment(store: MongoStore) -> Fragment:
    made = Fragment("mongo", "d", f"c{uuid.uuid4().hex[:12]}", FIELDS, GROUPS)
    await store.prepare(made)
    return made


@pytest.fixture
def id_() -> str:
    return f"é{uuid.uuid4().hex}"


def writing(fragment: Fragment, kind: WriteKind, id_: str, **what: Any) -> Write:
    operation = what.pop("operation", uuid.uuid4().hex)
    groups = what.pop("groups", ("main", "side"))
    return Write(fragment, id_, kind, operation, groups, **what)


def increment(fragment: Fragment, id_: str, **what: Any) -> Write:
    call = OperatorCall("n", Operator.INC, 1)
    what = {"groups": ("main",), "operators": (call,), **what}
    return writing(fragment, WriteKind.UPDATE, id_, **what)


async def one(store: MongoStore, write: Write) -> WriteResult:
    (result,) = await store.write([write])
    return result


async def relayed(store: MongoStore, fragment: Fragment, *ids: str) -> list[Change]:
    """Take everything that waits, and settle it."""
    summary: list[Change] = []
    while waiting := await store.pending(fragment, ids):
        assert all(one.agrees for one in waiting)
        summary += [change for one in waiting for change in one.changes]
        await store.acknowledge(waiting)
    return summary


async def json_values(store: MongoStore, fragment: Fragment, id_: str) -> dict[str, Any] | None:
    (record,) = await store.read([Read(fragment, id_)])
    if record is None:
        return None
    encoders = {name: json_encoder(field) for name, field in FIELDS.items()}
    return {
        name: encode(value) if (encode := encoders[name]) and value is not None else value
        for name, value in record.values.items()
    }


def test_the_port_is_offered(store: MongoStore) -> None:
    assert isinstance(store, PendingChanges)


# Before and after


async def test_every_kind_tells_what_was_touched(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    moment = datetime(2024, 1, 2, tzinfo=UTC)
    results = [
        await one(store, writing(fragment, WriteKind.CREATE, id_, operation="a", values={"n": 1})),
        await one(
            store,
            writing(
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
        await one(
            store, writing(fragment, WriteKind.REPLACE, id_, operation="c", values={"s": "x"})
        ),
        await one(store, writing(fragment, WriteKind.DELETE, id_, operation="d")),
        await one(store, writing(fragment, WriteKind.REPLACE, id_, operation="e")),
    ]
    changes = {change.id: change for change in await relayed(store, fragment, id_)}
    summary = {id_: (c.kind, c.before, c.after) for id_, c in changes.items()}
    timed = {"t": "2024-01-02T00:00:00Z", "d": "1.5"}
    assert summary == {
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


async def test_a_version_that_is_not_the_clock_is_told(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    late = replace(store.config)
    await one(store, writing(fragment, WriteKind.REPLACE, id_))
    early = MongoStore(late, EarlyClock())
    await early.open()
    result = await one(early, increment(fragment, id_))
    await early.close()
    changes = await relayed(store, fragment, id_)
    assert changes[-1].version == result.versions["main"] == changes[0].version + 1
    assert changes[-1].time_us < changes[0].time_us


class EarlyClock:
    """An hour slow."""

    def now(self) -> float:
        return datetime.now(UTC).timestamp() - 3600

    def monotonic(self) -> float:
        return 0.0


# Any sequence of writes, relayed at any points

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
    able = [o for o in Operator if type_ in APPLICABLE[o] and o not in {"set", "unset"}]
    operator = draw(st.sampled_from(able))
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
    what: dict[str, Any] = {"kind": kind}
    if kind is WriteKind.DELETE:
        return what
    uses = {name: draw(st.sampled_from(["value", "null", "unset", "call"])) for name in names}
    update = kind is WriteKind.UPDATE
    what["values"] = {
        name: None if use == "null" else draw(_VALUES[name])
        for name, use in uses.items()
        if use in {"value", "null"} or not update
    }
    if update:
        what["unset"] = tuple(name for name, use in uses.items() if use == "unset")
        called = [name for name, use in uses.items() if use == "call"]
        what["operators"] = tuple(draw(calls(name)) for name in called if name in _OPERABLE)
        touched = {*what["values"], *what["unset"], *(c.field for c in what["operators"])}
        groups = tuple(g for g, members in GROUPS.items() if touched & set(members))
        what["groups"] = groups or ("main",)
    return what


def merged(state: dict[str, Any] | None, change: Change) -> dict[str, Any] | None:
    """Apply a change to the values it was made to, and check that these are what it says."""
    members = GROUPS[change.group]
    here = None if state is None else {n: v for n, v in state.items() if n in members}
    if change.kind == "update":
        assert here is not None
        assert change.before is not None
        assert change.after is not None
        touched = {*change.before, *change.after}
        assert {n: v for n, v in here.items() if n in touched} == change.before
        here = {n: v for n, v in here.items() if n not in touched} | dict(change.after)
    else:
        assert (here or None) == (change.before or None)
        here = None if change.after is None else dict(change.after)
    if here is None:
        return None
    return {n: v for n, v in (state or {}).items() if n not in members} | here


def replayed(changes: Sequence[Change]) -> dict[str, Any] | None:
    """Return what a consumer of the feed has in the end, who keeps each group by itself."""
    groups: dict[str, dict[str, Any] | None] = dict.fromkeys(GROUPS)
    versions: defaultdict[str, int] = defaultdict(int)
    for change in changes:
        groups[change.group] = merged(groups[change.group], change)
        assert change.version > versions[change.group]
        versions[change.group] = change.version
    assert len({group is None for group in groups.values()}) == 1
    if groups["main"] is None:
        return None
    return {name: value for group in groups.values() for name, value in (group or {}).items()}


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(batches=st.lists(st.lists(steps(), min_size=1, max_size=8), min_size=1, max_size=4))
async def test_what_is_told_leads_to_what_is_there(
    store: MongoStore, fragment: Fragment, batches: list[list[dict[str, Any]]]
) -> None:
    id_ = uuid.uuid4().hex
    applied: list[str] = []
    summary: list[Change] = []
    for batch in batches:
        writes = [writing(fragment, id_=id_, **step) for step in batch]
        for write, result in zip(writes, await store.write(writes), strict=True):
            if result.status is Status.APPLIED:
                applied += [f"{write.operation}:{group}" for group in write.groups]
        summary += await relayed(store, fragment, id_)
        assert replayed(summary) == await json_values(store, fragment, id_)
    assert [change.id for change in summary] == applied


# Settling


async def test_what_was_told_and_not_settled_is_told_again(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    """A relay that dies after it has appended leaves everything as it was, and more behind it."""
    await one(store, writing(fragment, WriteKind.CREATE, id_, values={"n": 0}))
    await one(store, increment(fragment, id_, operation="first"))
    (dead,) = await store.pending(fragment, [id_])
    await one(store, increment(fragment, id_, operation="second"))
    (heir,) = await store.pending(fragment, [id_])
    assert heir.changes[: len(dead.changes)] == dead.changes
    await store.acknowledge([heir])
    await store.acknowledge([dead])
    await one(store, increment(fragment, id_))
    (last,) = await store.pending(fragment, [id_])
    assert [(c.before, c.after) for c in last.changes] == [({"n": 2}, {"n": 3})]


async def test_a_relay_that_was_slow_takes_nothing_away(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    await one(store, writing(fragment, WriteKind.CREATE, id_, values={"n": 0}))
    (fast,) = await store.pending(fragment, [id_])
    await one(store, increment(fragment, id_))
    (slow,) = await store.pending(fragment, [id_])
    await store.acknowledge([fast])
    await store.acknowledge([slow])
    (left,) = await store.pending(fragment, [id_])
    assert [(c.kind, c.before, c.after) for c in left.changes] == [("update", {"n": 0}, {"n": 1})]


async def test_a_record_with_very_many_is_told_in_parts(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    await one(store, writing(fragment, WriteKind.CREATE, id_, values={"n": 0}))
    await fill(store, fragment, id_, AT_ONCE + 3)
    store.take_written(10**6)
    (first,) = await store.pending(fragment, [id_])
    assert len(first.changes) == AT_ONCE + 1, "a create is told for both groups"
    assert store.take_written(10) == [("d", fragment.class_name, id_)]
    await store.acknowledge([first])
    (rest,) = await store.pending(fragment, [id_])
    assert rest.agrees
    assert [c.after for c in rest.changes][-1] == {"n": AT_ONCE + 3}


async def test_values_that_the_changes_do_not_lead_to_are_reported(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    await one(store, writing(fragment, WriteKind.CREATE, id_, values={"n": 0}))
    collection = store._open_link.session.collection(layout_of(fragment))
    await collection.update_one(layout_of(fragment).key(id_), {"$set": {"values.n": 7}})
    (odd,) = await store.pending(fragment, [id_])
    assert not odd.agrees
    assert odd.changes[0].after == {"n": 7}
    await store.acknowledge([odd])
    await one(store, increment(fragment, id_))
    (even,) = await store.pending(fragment, [id_])
    assert even.agrees
    assert even.changes[0].before == {"n": 7}


# Finding


async def test_written_records_are_told_once(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    store.take_written(10**6)
    await one(store, writing(fragment, WriteKind.CREATE, id_, values={"n": 0}))
    await store.write([increment(fragment, id_), increment(fragment, id_ + "missing")])
    assert store.take_written(1) == [("d", fragment.class_name, id_)]
    assert store.take_written(1) == []
    ids = [f"{id_}{i}" for i in range(8)]
    await store.write([writing(fragment, WriteKind.REPLACE, i) for i in ids])
    assert [found for _, _, found in store.take_written(100)] == ids


async def test_the_sweep_finds_what_waits(store: MongoStore) -> None:
    made = Fragment("mongo", "d", f"c{uuid.uuid4().hex[:12]}", FIELDS, GROUPS)
    await store.prepare(made)
    ids = sorted(("a", "b", "c", "\ue000", "\U0001f600"))
    await store.write([writing(made, WriteKind.REPLACE, i) for i in ids])
    await one(store, writing(made, WriteKind.DELETE, "c"))
    await relayed(store, made, "b")
    assert await store.sweep(made, None, 2) == ["a", "c"]
    assert await store.sweep(made, "c", 9) == ["\ue000", "\U0001f600"]


# Bounds


async def fill(store: MongoStore, fragment: Fragment, id_: str, count: int) -> None:
    """Make increments of the counter behind the store's back, for the sake of time."""
    layout = layout_of(fragment)
    (record,) = await store.read([Read(fragment, id_)])
    assert record is not None
    stamps = range(record.versions["main"] + 1, record.versions["main"] + 1 + count)
    texts = [layout.effects.text(increment(fragment, id_), {"main": s}, s) for s in stamps]
    await store._open_link.session.collection(layout).update_one(
        layout.key(id_),
        {
            "$set": {layout.paths["n"]: Int64(count), layout.version_paths["main"]: stamps[-1]},
            "$push": {"_pending": {"$each": texts}},
        },
    )


async def test_a_full_outbox_refuses_writes_until_it_is_relayed(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    await one(store, writing(fragment, WriteKind.CREATE, id_, values={"n": 0}))
    await fill(store, fragment, id_, OUTBOX - 2)
    assert (await one(store, increment(fragment, id_))).status is Status.APPLIED
    for write in (
        increment(fragment, id_),
        increment(fragment, id_, remember="f"),
        writing(fragment, WriteKind.REPLACE, id_),
        writing(fragment, WriteKind.DELETE, id_),
    ):
        with pytest.raises(StoreBusy):
            await one(store, write)
    assert (await one(store, writing(fragment, WriteKind.CREATE, id_))).status is Status.EXISTS
    others = [increment(fragment, i) for i in "abcdefg"]
    with pytest.raises(StoreBusy):
        await store.write([*others, increment(fragment, id_)])
    waiting = asyncio.create_task(one(store, increment(fragment, id_)))
    summary = await relayed(store, fragment, id_)
    assert [c.after for c in summary[2:]][: OUTBOX - 1] == [{"n": n} for n in range(1, OUTBOX)]
    assert (await waiting).status is Status.APPLIED


class Feed:
    """What two relays that do not know of each other have brought."""

    def __init__(self, store: MongoStore) -> None:
        self.changes: dict[str, Change] = {}
        self._store = store

    def take(self, waiting: Sequence[UnrelayedChanges]) -> None:
        for change in (change for one in waiting for change in one.changes):
            assert self.changes.setdefault(change.id, change) == change

    async def relay(self, fragment: Fragment, ids: Sequence[str], done: asyncio.Event) -> None:
        while not done.is_set():
            waiting = await self._store.pending(fragment, ids)
            self.take(waiting)
            await self._store.acknowledge(waiting)


async def test_sixteen_writers_and_two_relays(store: MongoStore, fragment: Fragment) -> None:
    ids = [uuid.uuid4().hex for _ in range(4)]
    await store.write([writing(fragment, WriteKind.CREATE, i, values={"n": 0}) for i in ids])
    feed, done = Feed(store), asyncio.Event()

    async def write(number: int) -> None:
        for turn in range(20):
            await one(store, increment(fragment, ids[(number + turn) % len(ids)]))

    relays = [asyncio.create_task(feed.relay(fragment, ids, done)) for _ in range(2)]
    await asyncio.gather(*(write(number) for number in range(16)))
    done.set()
    await asyncio.gather(*relays)
    feed.take(await store.pending(fragment, ids))
    for id_ in ids:
        summary = [c for c in feed.changes.values() if c.object_id == id_ and c.kind == "update"]
        summary.sort(key=lambda change: change.version)
        assert [c.after for c in summary] == [{"n": n} for n in range(1, 81)]


# Whether a bulk write applied


async def test_a_record_tells_of_writes_that_were_relayed(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    collection = store._open_link.session.collection(layout_of(fragment))

    async def document() -> Any:
        return await collection.find_one(layout_of(fragment).key(id_))

    await one(store, writing(fragment, WriteKind.CREATE, id_, operation="made", values={"n": 0}))
    before = await document()
    mine = await one(store, increment(fragment, id_, operation="mine"))
    count, stamp = acknowledged_count(before), mine.versions["main"]
    assert has_applied(await document(), "mine", stamp, count) is True
    assert has_applied(await document(), "mine", stamp + 1, count) is False
    assert has_applied(await document(), "other", stamp, count) is False
    await relayed(store, fragment, id_)
    assert has_applied(await document(), "mine", stamp, count) is True
    assert has_applied(await document(), "mine", stamp + 1, count) is False
    assert has_applied(await document(), "other", stamp, count) is False
    for _ in range(NAMED):
        await one(store, increment(fragment, id_))
    await relayed(store, fragment, id_)
    assert has_applied(await document(), "mine", stamp, count) is None
    assert (
        has_applied(await document(), "other", stamp, acknowledged_count(await document())) is False
    )


@pytest.mark.parametrize("is_relayed", [False, True])
@pytest.mark.parametrize("taken", [3, 8])
@pytest.mark.parametrize("kind", [WriteKind.UPDATE, WriteKind.REPLACE])
async def test_what_another_process_did_for_an_operation_is_not_taken_for_ones_own(
    store: MongoStore,
    fragment: Fragment,
    mongodb_config: SystemConfig,
    monkeypatch: pytest.MonkeyPatch,
    kind: WriteKind,
    taken: int,
    is_relayed: bool,
) -> None:
    """A coordinator and whoever resolves its write send the same steps at the same time.

    The other one comes between what is read of the records and what is written to them.
    """
    ids = [uuid.uuid4().hex for _ in range(8)]
    await store.write([writing(fragment, WriteKind.CREATE, i, values={"n": 0}) for i in ids])
    await store.lock([(fragment, id_) for id_ in ids], "intent")
    groups = ("main",) if kind is WriteKind.UPDATE else tuple(GROUPS)
    steps = [
        writing(fragment, kind, i, groups=groups, values={"n": 1}, intent="intent") for i in ids
    ]
    session: Any = store._open_link.session
    apply_all, commands = session.apply_all, session._connections.commands
    other = MongoStore(replace(mongodb_config, namespace=NAMESPACE, deadline_s=30.0))
    await other.open()
    overtaken: list[WriteResult] = []

    async def overtake() -> None:
        overtaken.extend(await other.write(steps[:taken]))
        if is_relayed:
            await relayed(other, fragment, *ids[:taken])

    async def applied_late(*arguments: Any) -> Any:
        await overtake()
        return await apply_all(*arguments)

    async def sent_apart(database: str, sent: Sequence[Any]) -> list[Any]:
        """Carry out commands of one round trip one by one."""
        if [next(iter(command)) for command in sent] != ["find", "update"]:
            return list(await commands(database, sent))
        found = await commands(database, sent[:1])
        await overtake()
        return [*found, *await commands(database, sent[1:])]

    monkeypatch.setattr(session, "apply_all", applied_late)
    monkeypatch.setattr(session._connections, "commands", sent_apart)
    results = await store.write(steps)
    assert [result.status for result in overtaken] == [Status.APPLIED] * taken
    assert [r.status for r in results] == [Status.LOCKED] * taken + [Status.APPLIED] * (8 - taken)
    records = await store.read([Read(fragment, id_) for id_ in ids])
    assert [record.versions for record in records if record] == [
        result.versions for result in [*overtaken, *results[taken:]]
    ]
    await other.close()


async def test_an_intent_that_comes_late_does_not_mix_up_a_bulk(
    store: MongoStore, fragment: Fragment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many updates apply as records had the intent when they were read, but not the same."""
    ids = [uuid.uuid4().hex for _ in range(8)]
    await store.write([writing(fragment, WriteKind.CREATE, i, values={"n": 0}) for i in ids])
    await store.lock([(fragment, id_) for id_ in ids[:7]], "intent")
    steps = [
        writing(fragment, WriteKind.UPDATE, i, groups=("main",), values={"n": 1}, intent="intent")
        for i in ids
    ]
    lines: Any = store._open_link.session._connections
    commands = lines.commands

    async def sent_apart(database: str, sent: Sequence[Any]) -> list[Any]:
        if [next(iter(command)) for command in sent] != ["find", "update"]:
            return list(await commands(database, sent))
        found = await commands(database, sent[:1])
        await store.unlock([(fragment, ids[0])], "intent")
        await store.lock([(fragment, ids[7])], "intent")
        return [*found, *await commands(database, sent[1:])]

    monkeypatch.setattr(lines, "commands", sent_apart)
    results = await store.write(steps)
    expected = [Status.LOCKED, *[Status.APPLIED] * 6, Status.LOCKED]
    assert [result.status for result in results] == expected
    records = await store.read([Read(fragment, id_) for id_ in ids])
    assert [record.values["n"] for record in records if record] == [0, *[1] * 7]
