"""MongoDB's outbox loses no change, is bounded, and shows which writes applied."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from bson.int64 import Int64

from mediator.model.change import Change
from mediator.stores.mongo import MongoStore
from mediator.stores.mongo.layout import layout_of
from mediator.stores.mongo.outbox.entries import (
    MAX_ACKNOWLEDGED_NAMES,
    MAX_OUTBOX_ENTRIES,
    acknowledged_count,
    has_applied,
)
from mediator.stores.mongo.outbox.replay import MAX_REPLAYED
from mediator.stores.port import (
    Fragment,
    Read,
    Status,
    StoreBusy,
    SystemConfig,
    UnrelayedChanges,
    WriteKind,
    WriteResult,
)
from tests.conformance.mongo.outbox.relaying import FIELDS, GROUPS, NAMESPACE, increment, relay
from tests.conformance.mongo.records import make_write, write_one

# Acknowledging


async def test_pending_entries_are_returned_until_acknowledged(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    """A relay that dies after appending leaves all entries, followed by newer ones."""
    await write_one(store, make_write(fragment, WriteKind.CREATE, id_, values={"n": 0}))
    await write_one(store, increment(fragment, id_, operation="first"))
    (first,) = await store.pending(fragment, [id_])
    await write_one(store, increment(fragment, id_, operation="second"))
    (second,) = await store.pending(fragment, [id_])
    assert second.changes[: len(first.changes)] == first.changes
    await store.acknowledge([second])
    await store.acknowledge([first])
    await write_one(store, increment(fragment, id_))
    (last,) = await store.pending(fragment, [id_])
    assert [(c.before, c.after) for c in last.changes] == [({"n": 2}, {"n": 3})]


async def test_a_slow_relay_removes_no_newer_entry(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    await write_one(store, make_write(fragment, WriteKind.CREATE, id_, values={"n": 0}))
    (fast,) = await store.pending(fragment, [id_])
    await write_one(store, increment(fragment, id_))
    (slow,) = await store.pending(fragment, [id_])
    await store.acknowledge([fast])
    await store.acknowledge([slow])
    (remaining,) = await store.pending(fragment, [id_])
    assert [(c.kind, c.before, c.after) for c in remaining.changes] == [
        ("update", {"n": 0}, {"n": 1})
    ]


async def test_a_record_with_very_many_changes_is_returned_in_batches(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    await write_one(store, make_write(fragment, WriteKind.CREATE, id_, values={"n": 0}))
    await fill(store, fragment, id_, MAX_REPLAYED + 3)
    store.take_written(10**6)
    (first,) = await store.pending(fragment, [id_])
    assert len(first.changes) == MAX_REPLAYED + 1, "a create has a change in each of the two groups"
    assert store.take_written(10) == [("d", fragment.class_name, id_)]
    await store.acknowledge([first])
    (remaining,) = await store.pending(fragment, [id_])
    assert remaining.agrees
    assert [c.after for c in remaining.changes][-1] == {"n": MAX_REPLAYED + 3}


async def test_values_that_differ_from_the_replayed_changes_are_reported(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    await write_one(store, make_write(fragment, WriteKind.CREATE, id_, values={"n": 0}))
    collection = store.link.session.collection(layout_of(fragment))
    await collection.update_one(layout_of(fragment).key(id_), {"$set": {"values.n": 7}})
    (inconsistent,) = await store.pending(fragment, [id_])
    assert not inconsistent.agrees
    assert inconsistent.changes[0].after == {"n": 7}
    await store.acknowledge([inconsistent])
    await write_one(store, increment(fragment, id_))
    (consistent,) = await store.pending(fragment, [id_])
    assert consistent.agrees
    assert consistent.changes[0].before == {"n": 7}


# Finding


async def test_written_records_are_returned_once(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    store.take_written(10**6)
    await write_one(store, make_write(fragment, WriteKind.CREATE, id_, values={"n": 0}))
    await store.write([increment(fragment, id_), increment(fragment, id_ + "missing")])
    assert store.take_written(1) == [("d", fragment.class_name, id_)]
    assert store.take_written(1) == []
    ids = [f"{id_}{i}" for i in range(8)]
    await store.write([make_write(fragment, WriteKind.REPLACE, i) for i in ids])
    assert [written_id for _, _, written_id in store.take_written(100)] == ids


async def test_the_sweep_finds_records_with_pending_entries(store: MongoStore) -> None:
    swept = Fragment("mongo", "d", f"c{uuid.uuid4().hex[:12]}", FIELDS, GROUPS)
    await store.prepare(swept)
    ids = sorted(("a", "b", "c", "\ue000", "\U0001f600"))
    await store.write([make_write(swept, WriteKind.REPLACE, i) for i in ids])
    await write_one(store, make_write(swept, WriteKind.DELETE, "c"))
    await relay(store, swept, "b")
    assert await store.sweep(swept, None, 2) == ["a", "c"]
    assert await store.sweep(swept, "c", 9) == ["\ue000", "\U0001f600"]


# Bounds


async def fill(store: MongoStore, fragment: Fragment, id_: str, count: int) -> None:
    """Append increments directly in the database, which is faster than the store."""
    layout = layout_of(fragment)
    (record,) = await store.read([Read(fragment, id_)])
    assert record is not None
    stamps = range(record.versions["main"] + 1, record.versions["main"] + 1 + count)
    texts = [layout.effects.text(increment(fragment, id_), {"main": s}, s) for s in stamps]
    await store.link.session.collection(layout).update_one(
        layout.key(id_),
        {
            "$set": {layout.paths["n"]: Int64(count), layout.version_paths["main"]: stamps[-1]},
            "$push": {"_pending": {"$each": texts}},
        },
    )


async def test_a_full_outbox_refuses_writes_until_it_is_relayed(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    await write_one(store, make_write(fragment, WriteKind.CREATE, id_, values={"n": 0}))
    await fill(store, fragment, id_, MAX_OUTBOX_ENTRIES - 2)
    assert (await write_one(store, increment(fragment, id_))).status is Status.APPLIED
    for write in (
        increment(fragment, id_),
        increment(fragment, id_, remember="f"),
        make_write(fragment, WriteKind.REPLACE, id_),
        make_write(fragment, WriteKind.DELETE, id_),
    ):
        with pytest.raises(StoreBusy):
            await write_one(store, write)
    assert (
        await write_one(store, make_write(fragment, WriteKind.CREATE, id_))
    ).status is Status.EXISTS
    other_writes = [increment(fragment, i) for i in "abcdefg"]
    with pytest.raises(StoreBusy):
        await store.write([*other_writes, increment(fragment, id_)])
    write_task = asyncio.create_task(write_one(store, increment(fragment, id_)))
    changes = await relay(store, fragment, id_)
    assert [c.after for c in changes[2:]][: MAX_OUTBOX_ENTRIES - 1] == [
        {"n": n} for n in range(1, MAX_OUTBOX_ENTRIES)
    ]
    assert (await write_task).status is Status.APPLIED


class Feed:
    """The changes that two independent relays have relayed."""

    def __init__(self, store: MongoStore) -> None:
        self.changes: dict[str, Change] = {}
        self._store = store

    def take(self, pending: Sequence[UnrelayedChanges]) -> None:
        for change in (change for record in pending for change in record.changes):
            assert self.changes.setdefault(change.id, change) == change

    async def relay(self, fragment: Fragment, ids: Sequence[str], done: asyncio.Event) -> None:
        while not done.is_set():
            pending = await self._store.pending(fragment, ids)
            self.take(pending)
            await self._store.acknowledge(pending)


async def test_sixteen_writers_and_two_relays(store: MongoStore, fragment: Fragment) -> None:
    ids = [uuid.uuid4().hex for _ in range(4)]
    await store.write([make_write(fragment, WriteKind.CREATE, i, values={"n": 0}) for i in ids])
    feed, done = Feed(store), asyncio.Event()

    async def write(number: int) -> None:
        for step in range(20):
            await write_one(store, increment(fragment, ids[(number + step) % len(ids)]))

    relays = [asyncio.create_task(feed.relay(fragment, ids, done)) for _ in range(2)]
    await asyncio.gather(*(write(number) for number in range(16)))
    done.set()
    await asyncio.gather(*relays)
    feed.take(await store.pending(fragment, ids))
    for id_ in ids:
        changes = [c for c in feed.changes.values() if c.object_id == id_ and c.kind == "update"]
        changes.sort(key=lambda change: change.version)
        assert [c.after for c in changes] == [{"n": n} for n in range(1, 81)]


# Whether a bulk write applied


async def test_a_record_shows_writes_after_their_relay(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    collection = store.link.session.collection(layout_of(fragment))

    async def document() -> Any:
        return await collection.find_one(layout_of(fragment).key(id_))

    await write_one(
        store, make_write(fragment, WriteKind.CREATE, id_, operation="made", values={"n": 0})
    )
    before = await document()
    result = await write_one(store, increment(fragment, id_, operation="mine"))
    count, stamp = acknowledged_count(before), result.versions["main"]
    assert has_applied(await document(), "mine", stamp, count) is True
    assert has_applied(await document(), "mine", stamp + 1, count) is False
    assert has_applied(await document(), "other", stamp, count) is False
    await relay(store, fragment, id_)
    assert has_applied(await document(), "mine", stamp, count) is True
    assert has_applied(await document(), "mine", stamp + 1, count) is False
    assert has_applied(await document(), "other", stamp, count) is False
    for _ in range(MAX_ACKNOWLEDGED_NAMES):
        await write_one(store, increment(fragment, id_))
    await relay(store, fragment, id_)
    assert has_applied(await document(), "mine", stamp, count) is None
    assert (
        has_applied(await document(), "other", stamp, acknowledged_count(await document())) is False
    )


@pytest.mark.parametrize("is_relayed", [False, True])
@pytest.mark.parametrize("applied_count", [3, 8])
@pytest.mark.parametrize("kind", [WriteKind.UPDATE, WriteKind.REPLACE])
async def test_a_step_applied_by_another_process_is_not_reported_as_own(
    store: MongoStore,
    fragment: Fragment,
    mongodb_config: SystemConfig,
    monkeypatch: pytest.MonkeyPatch,
    kind: WriteKind,
    applied_count: int,
    is_relayed: bool,
) -> None:
    """A coordinator and the resolver of its write send the same steps concurrently.

    The resolver writes between the coordinator's read and write of the records.
    """
    ids = [uuid.uuid4().hex for _ in range(8)]
    await store.write([make_write(fragment, WriteKind.CREATE, i, values={"n": 0}) for i in ids])
    await store.lock([(fragment, id_) for id_ in ids], "intent")
    groups = ("main",) if kind is WriteKind.UPDATE else tuple(GROUPS)
    steps = [
        make_write(fragment, kind, i, groups=groups, values={"n": 1}, intent="intent") for i in ids
    ]
    session: Any = store.link.session
    apply_all, commands = session.apply_all, session.connections.commands
    other_store = MongoStore(replace(mongodb_config, namespace=NAMESPACE, deadline_s=30.0))
    await other_store.open()
    other_results: list[WriteResult] = []

    async def overtake() -> None:
        other_results.extend(await other_store.write(steps[:applied_count]))
        if is_relayed:
            await relay(other_store, fragment, *ids[:applied_count])

    async def apply_late(*arguments: Any) -> Any:
        await overtake()
        return await apply_all(*arguments)

    async def send_separately(database: str, documents: Sequence[Any]) -> list[Any]:
        """Run the commands of one round trip one by one."""
        if [next(iter(command)) for command in documents] != ["find", "update"]:
            return list(await commands(database, documents))
        replies = await commands(database, documents[:1])
        await overtake()
        return [*replies, *await commands(database, documents[1:])]

    monkeypatch.setattr(session, "apply_all", apply_late)
    monkeypatch.setattr(session.connections, "commands", send_separately)
    results = await store.write(steps)
    assert [result.status for result in other_results] == [Status.APPLIED] * applied_count
    assert [r.status for r in results] == [Status.LOCKED] * applied_count + [Status.APPLIED] * (
        8 - applied_count
    )
    records = await store.read([Read(fragment, id_) for id_ in ids])
    assert [record.versions for record in records if record] == [
        result.versions for result in [*other_results, *results[applied_count:]]
    ]
    await other_store.close()


async def test_a_late_intent_does_not_mix_up_the_results_of_a_bulk_write(
    store: MongoStore, fragment: Fragment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many updates apply as records had the intent when read, but to other records."""
    ids = [uuid.uuid4().hex for _ in range(8)]
    await store.write([make_write(fragment, WriteKind.CREATE, i, values={"n": 0}) for i in ids])
    await store.lock([(fragment, id_) for id_ in ids[:7]], "intent")
    steps = [
        make_write(
            fragment, WriteKind.UPDATE, i, groups=("main",), values={"n": 1}, intent="intent"
        )
        for i in ids
    ]
    connections: Any = store.link.session.connections
    commands = connections.commands

    async def send_separately(database: str, documents: Sequence[Any]) -> list[Any]:
        if [next(iter(command)) for command in documents] != ["find", "update"]:
            return list(await commands(database, documents))
        replies = await commands(database, documents[:1])
        await store.unlock([(fragment, ids[0])], "intent")
        await store.lock([(fragment, ids[7])], "intent")
        return [*replies, *await commands(database, documents[1:])]

    monkeypatch.setattr(connections, "commands", send_separately)
    results = await store.write(steps)
    expected = [Status.LOCKED, *[Status.APPLIED] * 6, Status.LOCKED]
    assert [result.status for result in results] == expected
    records = await store.read([Read(fragment, id_) for id_ in ids])
    assert [record.values["n"] for record in records if record] == [0, *[1] * 7]


async def test_a_slow_relay_leaves_a_later_generation_of_the_record_alone(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    await write_one(store, make_write(fragment, WriteKind.CREATE, id_, values={"n": 0}))
    first = await store.pending(fragment, [id_])
    layout = layout_of(fragment)
    await store.link.session.collection(layout).delete_one(layout.key(id_))
    await write_one(store, make_write(fragment, WriteKind.CREATE, id_, values={"n": 5}))
    await store.acknowledge(first)
    main = [change for change in await relay(store, fragment, id_) if change.group == "main"]
    assert [(change.before, change.after) for change in main] == [(None, {"n": 5})]
