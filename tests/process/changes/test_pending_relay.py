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
from mediator.schema.types import FieldType
from mediator.stores.mongo import MongoStore
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
    """Takes a change if its version is above that of its group's last one; fails when told to."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.dies_before = self.dies_after = False
        self._last: dict[tuple[str, str, str], int] = {}

    async def append(self, changes: Sequence[Change]) -> None:
        if self.dies_before:
            raise ConnectionError
        for change in changes:
            key = (change.class_name, change.object_id, change.group)
            if change.version > self._last.get(key, 0):
                self._last[key] = change.version
                self.changes.append(change)
        if self.dies_after:
            raise ConnectionError

    def counted(self, id_: str) -> list[int]:
        """Return the counter of an object after each of its changes."""
        return [c.after["n"] for c in self.changes if c.object_id == id_ and c.after]


class Pace:
    """A clock that goes when it is told to."""

    seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def monotonic(self) -> float:
        return self.seconds


class Bench:
    """A store with two classes, the feed, and relays between them."""

    def __init__(self, store: MongoStore, database: str) -> None:
        self.store, self.feed, self.clock = store, Feed(), Pace()
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
        what = {"values": {"n": 0}} if kind is WriteKind.CREATE else {"operators": (call,)}
        operation, fragment = uuid.uuid4().hex, self.fragments[class_name]
        return Write(fragment, id_, kind, operation, ("main",), **what)


@pytest.fixture
async def bench(mongodb_config: SystemConfig) -> AsyncIterator[Bench]:
    store = MongoStore(replace(mongodb_config, namespace="pending_relay", deadline_s=30.0))
    await store.open()
    bench = Bench(store, f"d{uuid.uuid4().hex[:8]}")
    for fragment in bench.fragments.values():
        await store.prepare(fragment)
    yield bench
    for fragment in bench.fragments.values():
        await store.drop(fragment)
    await store.close()


async def test_what_is_written_is_brought(bench: Bench) -> None:
    relay = bench.relay()
    ids = [f"{number}" for number in range(100)]
    await bench.create(*ids)
    await bench.create("a", class_name="second")
    assert await relay.drain() == 101
    await bench.count("7", "7", "a")
    await bench.count("a", class_name="second")
    assert await relay.drain() == 3
    assert await relay.drain() == 0
    assert bench.feed.counted("7") == [0, 1, 2]
    assert bench.feed.counted("a") == [0, 1]


@pytest.mark.parametrize("moment", ["dies_before", "dies_after"])
async def test_a_feed_that_fails_gets_everything_once_it_is_back(bench: Bench, moment: str) -> None:
    relay = bench.relay()
    await bench.create("x")
    setattr(bench.feed, moment, True)
    with pytest.raises(ConnectionError):
        await relay.drain()
    await bench.count("x")
    setattr(bench.feed, moment, False)
    await relay.drain()
    assert bench.feed.counted("x") == [0, 1]
    assert await relay.drain() == 0


async def test_an_heir_sweeps_up_what_the_dead_have_left(bench: Bench) -> None:
    """A process died: after writing, between the feed and the store, and while all was well."""
    await bench.create("settled", "appended", "written")
    bench.store.take_written(100)
    dead = bench.relay()
    acknowledged = await bench.store.pending(bench.fragments["first"], ["settled"])
    await bench.feed.append([change for one in acknowledged for change in one.changes])
    await bench.store.acknowledge(acknowledged)
    appended = await bench.store.pending(bench.fragments["first"], ["appended"])
    await bench.feed.append([change for one in appended for change in one.changes])
    await bench.count("appended")
    bench.store.take_written(100)
    assert await dead.drain() == 0
    heir = bench.relay()
    assert await heir.sweep(bench.fragments.values()) == 3
    assert bench.feed.counted("settled") == [0]
    assert bench.feed.counted("appended") == [0, 1]
    assert bench.feed.counted("written") == [0]


async def test_sweeps_keep_their_distance(bench: Bench) -> None:
    relay = bench.relay()
    await relay.sweep(bench.fragments.values())
    await bench.create("x")
    assert await relay.sweep(bench.fragments.values()) == 0
    bench.clock.seconds += bench.store.sweep_every_s
    assert await relay.sweep(bench.fragments.values()) == 1


async def test_a_class_that_is_gone_holds_nothing_up(bench: Bench) -> None:
    relay = bench.relay()
    await bench.create("x")
    await bench.create("y", class_name="second")
    del bench.fragments["first"]
    assert await relay.drain() == 1
    assert bench.feed.counted("y") == [0]


async def test_a_store_that_is_away_is_asked_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = bench.relay()
    await bench.create("x")

    async def away(*_: object) -> list[UnrelayedChanges]:
        raise StoreUnavailable("gone")

    with monkeypatch.context() as patched:
        patched.setattr(bench.store, "pending", away)
        with pytest.raises(StoreUnavailable):
            await relay.drain()
    assert await relay.drain() == 1


async def test_records_that_are_refused_hold_nothing_up(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay, acknowledge = bench.relay(), bench.store.acknowledge
    await bench.create("x")
    await bench.create("y", class_name="second")

    async def refused(done: Sequence[UnrelayedChanges]) -> None:
        if done[0].fragment.class_name == "first":
            raise StoreRefused("no")
        await acknowledge(done)

    with monkeypatch.context() as patched:
        patched.setattr(bench.store, "acknowledge", refused)
        with pytest.raises(StoreRefused):
            await relay.drain()
    assert bench.feed.counted("y") == [0]
    assert await relay.drain() == 1
    assert bench.feed.counted("x") == [0]


async def test_several_relays_and_sixteen_writers(bench: Bench) -> None:
    ids = [f"{number}" for number in range(4)]
    await bench.create(*ids)
    done = asyncio.Event()

    async def drain(relay: PendingRelay) -> None:
        while not done.is_set():
            await relay.drain()
            bench.clock.seconds += bench.store.sweep_every_s
            await relay.sweep([bench.fragments["first"]])

    async def write(number: int) -> None:
        for turn in range(15):
            await bench.count(ids[(number + turn) % 4])

    relays = [asyncio.create_task(drain(bench.relay())) for _ in range(3)]
    await asyncio.gather(*(write(number) for number in range(16)))
    done.set()
    await asyncio.gather(*relays)
    await bench.relay().sweep([bench.fragments["first"]])
    for id_ in ids:
        assert bench.feed.counted(id_) == list(range(61))
    assert len({change.id for change in bench.feed.changes}) == len(bench.feed.changes)
    assert bench.inconsistent == []
