"""The relay of MongoDB's outboxes: whatever fails, the feed gets every change once, in order."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from mediator.changes.pending_relay import PendingRelay
from mediator.model.change import Change
from mediator.model.operators import Operator, OperatorCall
from mediator.schema.tree import Field
from mediator.schema.types import FieldType, Values
from mediator.stores.mongo import MongoStore
from mediator.stores.mongo.sizes import MAX_VALUES_BYTES
from mediator.stores.port import (
    Fragment,
    StoreRefused,
    StoreUnavailable,
    SystemConfig,
    UnrelayedChanges,
    Write,
    WriteKind,
)

FIELDS = {"n": Field("n", FieldType.INTEGER)}
CLASSES = ("first", "second")


class Feed:
    """Appends a change only if its version is above its group's last one; fails on demand."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.dies_before = self.dies_after = False
        self._last: dict[tuple[str, str, str], int] = {}

    async def append(self, _database: str, changes: Sequence[Change]) -> None:
        if self.dies_before:
            raise ConnectionError
        for change in changes:
            key = (change.class_name, change.object_id, change.group)
            if change.version > self._last.get(key, 0):
                self._last[key] = change.version
                self.changes.append(change)
        if self.dies_after:
            raise ConnectionError

    def counters(self, id_: str) -> list[int]:
        """Return the counter of an object after each of its changes."""
        return [c.after["n"] for c in self.changes if c.object_id == id_ and c.after]


class HandClock:
    """A clock that a test sets."""

    seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def monotonic(self) -> float:
        return self.seconds


class Harness:
    """A store with two classes, the feed, and relays between them."""

    def __init__(self, store: MongoStore, database: str) -> None:
        self.store, self.feed, self.clock = store, Feed(), HandClock()
        self.inconsistent: list[UnrelayedChanges] = []
        self.fragments = {
            name: Fragment("mongo", database, name, FIELDS, {"main": ("n",)}) for name in CLASSES
        }
        self._database = database

    def relay(self) -> PendingRelay:
        """Start a relay, as a new process does."""
        return PendingRelay(
            self.store, self.feed.append, self.fragment_of, self.clock, self.inconsistent.append
        )

    def fragment_of(self, database: str, class_name: str) -> Fragment | None:
        return self.fragments.get(class_name) if database == self._database else None

    async def create(self, *ids: str, class_name: str = "first") -> None:
        await self.store.write([self._write(i, WriteKind.CREATE, class_name) for i in ids])

    async def count(self, *ids: str, class_name: str = "first") -> None:
        await self.store.write([self._write(i, WriteKind.UPDATE, class_name) for i in ids])

    def _write(self, id_: str, kind: WriteKind, class_name: str) -> Write:
        call = OperatorCall("n", Operator.INC, 1)
        members = {"values": {"n": 0}} if kind is WriteKind.CREATE else {"operators": (call,)}
        operation, fragment = uuid.uuid4().hex, self.fragments[class_name]
        return Write(fragment, id_, kind, operation, ("main",), **members)


@pytest.fixture
async def harness(mongodb_config: SystemConfig) -> AsyncIterator[Harness]:
    store = MongoStore(replace(mongodb_config, namespace="pending_relay", deadline_s=30.0))
    await store.open()
    harness = Harness(store, f"d{uuid.uuid4().hex[:8]}")
    for fragment in harness.fragments.values():
        await store.prepare(fragment)
    yield harness
    for fragment in harness.fragments.values():
        await store.drop(fragment)
    await store.close()


async def test_written_changes_are_relayed_once(harness: Harness) -> None:
    relay = harness.relay()
    ids = [f"{number}" for number in range(100)]
    await harness.create(*ids)
    await harness.create("a", class_name="second")
    assert await relay.drain() == 101
    await harness.count("7", "7", "a")
    await harness.count("a", class_name="second")
    assert await relay.drain() == 3
    assert await relay.drain() == 0
    assert harness.feed.counters("7") == [0, 1, 2]
    assert harness.feed.counters("a") == [0, 1]


@pytest.mark.parametrize("moment", ["dies_before", "dies_after"])
async def test_a_feed_that_fails_gets_everything_once_it_is_back(
    harness: Harness, moment: str
) -> None:
    relay = harness.relay()
    await harness.create("x")
    setattr(harness.feed, moment, True)
    with pytest.raises(ConnectionError):
        await relay.drain()
    await harness.count("x")
    setattr(harness.feed, moment, False)
    await relay.drain()
    assert harness.feed.counters("x") == [0, 1]
    assert await relay.drain() == 0


async def test_a_sweep_relays_changes_of_failed_replicas(harness: Harness) -> None:
    """A process was killed: after a write, between the feed and the store, and while idle."""
    await harness.create("acknowledged", "appended", "written")
    harness.store.take_written(100)
    failed = harness.relay()
    acknowledged = await harness.store.pending(harness.fragments["first"], ["acknowledged"])
    await harness.feed.append("d", [change for record in acknowledged for change in record.changes])
    await harness.store.acknowledge(acknowledged)
    appended = await harness.store.pending(harness.fragments["first"], ["appended"])
    await harness.feed.append("d", [change for record in appended for change in record.changes])
    await harness.count("appended")
    harness.store.take_written(100)
    assert await failed.drain() == 0
    successor = harness.relay()
    assert await successor.sweep(harness.fragments.values()) == 3
    assert harness.feed.counters("acknowledged") == [0]
    assert harness.feed.counters("appended") == [0, 1]
    assert harness.feed.counters("written") == [0]


async def test_sweeps_keep_their_distance(harness: Harness) -> None:
    relay = harness.relay()
    await relay.sweep(harness.fragments.values())
    await harness.create("x")
    assert await relay.sweep(harness.fragments.values()) == 0
    harness.clock.seconds += harness.store.sweep_every_s
    assert await relay.sweep(harness.fragments.values()) == 1


async def test_a_dropped_class_does_not_block_the_relay(harness: Harness) -> None:
    relay = harness.relay()
    await harness.create("x")
    await harness.create("y", class_name="second")
    del harness.fragments["first"]
    assert await relay.drain() == 1
    assert harness.feed.counters("y") == [0]


async def test_an_unavailable_store_is_read_again(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = harness.relay()
    await harness.create("x")

    async def fail(*_: object) -> list[UnrelayedChanges]:
        raise StoreUnavailable("gone")

    with monkeypatch.context() as patched:
        patched.setattr(harness.store, "pending", fail)
        with pytest.raises(StoreUnavailable):
            await relay.drain()
    assert await relay.drain() == 1


async def test_refused_records_do_not_block_other_classes(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay, acknowledge = harness.relay(), harness.store.acknowledge
    await harness.create("x")
    await harness.create("y", class_name="second")

    async def refuse(records: Sequence[UnrelayedChanges]) -> None:
        if records[0].fragment.class_name == "first":
            raise StoreRefused("no")
        await acknowledge(records)

    with monkeypatch.context() as patched:
        patched.setattr(harness.store, "acknowledge", refuse)
        with pytest.raises(StoreRefused):
            await relay.drain()
    assert harness.feed.counters("y") == [0]
    assert await relay.drain() == 1
    assert harness.feed.counters("x") == [0]


async def test_several_relays_and_sixteen_writers(harness: Harness) -> None:
    ids = [f"{number}" for number in range(4)]
    await harness.create(*ids)
    done = asyncio.Event()

    async def drain(relay: PendingRelay) -> None:
        while not done.is_set():
            await relay.drain()
            harness.clock.seconds += harness.store.sweep_every_s
            await relay.sweep([harness.fragments["first"]])

    async def write(number: int) -> None:
        for step in range(15):
            await harness.count(ids[(number + step) % 4])

    relays = [asyncio.create_task(drain(harness.relay())) for _ in range(3)]
    await asyncio.gather(*(write(number) for number in range(16)))
    done.set()
    await asyncio.gather(*relays)
    await harness.relay().sweep([harness.fragments["first"]])
    for id_ in ids:
        assert harness.feed.counters(id_) == list(range(61))
    assert len({change.id for change in harness.feed.changes}) == len(harness.feed.changes)
    assert harness.inconsistent == []


async def test_a_relay_has_relayed_all_only_with_the_last_of_large_changes(
    harness: Harness,
) -> None:
    """A store returns some megabytes of a record at a time."""
    text = {"t": Field("t", FieldType.STRING)}
    large = replace(harness.fragments["first"], fields=text, groups={"main": ("t",)})
    harness.fragments["first"] = large
    relay = harness.relay()
    for _ in range(2):
        values: Values = {"t": "x" * (MAX_VALUES_BYTES - 4096)}
        operation = uuid.uuid4().hex
        await harness.store.write(
            [Write(large, "x", WriteKind.REPLACE, operation, ("main",), values)]
        )
    assert (await relay.drain(), relay.complete) == (1, False)
    assert (await relay.drain(), relay.complete) == (1, True)
