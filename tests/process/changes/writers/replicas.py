"""Replicas with records in memory, which stall at a chosen step."""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from mediator.base.clock import SystemClock
from mediator.base.observation import Observation
from mediator.changes.feed import BEGINNING, PARTITIONS
from mediator.changes.pending_relays import PendingRelays
from mediator.changes.routes import RelayContext, SystemRoutes
from mediator.changes.writers import EXPIRED_S, Writers
from mediator.coordination.connecting import client_of, connect
from mediator.coordination.feed import RedisFeed
from mediator.coordination.writers import RedisWriters
from mediator.model.change import Change
from mediator.routing.model import RoutingModel
from mediator.stores.port import Fragment, StoreUnavailable, UnrelayedChanges


class MemoryRecords:
    """Records with outboxes; each process knows the records that it wrote."""

    sweep_every_s = 3600.0

    def __init__(self, outboxes: defaultdict[str, list[Change]]) -> None:
        self.outboxes = outboxes
        self.written_keys: dict[tuple[str, str, str], None] = {}
        self.away = False
        self.sweeps = 0

    def take_written(self, limit: int) -> list[tuple[str, str, str]]:
        keys = list(self.written_keys)[:limit]
        for key in keys:
            del self.written_keys[key]
        return keys

    async def pending(self, fragment: Fragment, ids: Sequence[str]) -> list[UnrelayedChanges]:
        if self.away:
            raise StoreUnavailable("it is away")
        outboxes = [(i, self.outboxes[i][:200]) for i in ids if self.outboxes[i]]
        for id_, changes in outboxes:
            if len(self.outboxes[id_]) > len(changes):
                self.written_keys[fragment.database, fragment.class_name, id_] = None
        return [
            UnrelayedChanges(
                fragment, i, changes, True, len(changes), len(changes) == len(self.outboxes[i])
            )
            for i, changes in outboxes
        ]

    async def sweep(self, fragment: Fragment, after: str | None, limit: int) -> list[str]:
        self.sweeps += after is None
        ids = (id_ for id_, outbox in self.outboxes.items() if outbox and id_ > (after or ""))
        return sorted(ids)[:limit]

    async def acknowledge(self, records: Sequence[UnrelayedChanges]) -> None:
        for record in records:  # another relay may have acknowledged them
            self.outboxes[record.id][:] = [
                c for c in self.outboxes[record.id] if c not in record.changes
            ]


class HandClock(SystemClock):
    """The monotonic time of all replicas, moved by the test."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


class StallPoint:
    """The call at which a replica stalls, before or after its execution."""

    CALLS: Mapping[type, Sequence[str]] = {
        MemoryRecords: ("pending", "acknowledge", "sweep"),
        RedisWriters: ("register", "renew", "revoke", "read", "note_recovered"),
        RedisFeed: (
            *("tick", "append_newer", "acknowledged", "publish_progress"),
            *("published_progress", "retire", "leave"),
        ),
    }

    def __init__(self, step: int, *, after: bool) -> None:
        self.stalled, self.resumed = asyncio.Event(), asyncio.Event()
        self._remaining = step
        self._after = after

    def wrap(self, owner: Any) -> None:
        """Count the calls of an object."""
        for name in self.CALLS[type(owner)]:
            setattr(owner, name, self._count_calls(getattr(owner, name)))

    def _count_calls(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def counted(*args: Any) -> Any:
            self._remaining -= 1
            if self._remaining:
                return await call(*args)
            if not self._after:
                await self._stall()
                return await call(*args)
            result = await call(*args)
            await self._stall()
            return result

        return counted

    async def _stall(self) -> None:
        self.stalled.set()
        await self.resumed.wait()


@dataclass
class Replica:
    """A replica: the records as it sees them, its relays, and its registration."""

    store: MemoryRecords
    relays: PendingRelays
    writers: Writers

    async def run(self) -> None:
        """Renew the registration, and relay."""
        await self.writers.renew()
        await self.relays.run()


class Harness:
    """One database in records, and replicas that write there."""

    def __init__(self, url: str) -> None:
        self.redis = connect(url)
        self.client = client_of(url)
        self.feed = RedisFeed(self.redis, self.client)
        self.database = f"d{uuid.uuid4().hex[:12]}"
        self.system = f"mongo_{self.database}"
        self.clock = HandClock()
        self.outboxes: defaultdict[str, list[Change]] = defaultdict(list)
        self.observed: list[Observation] = []
        self.number = 0

    def replica(self, name: str, stall: StallPoint | None = None) -> Replica:
        store, full_name = MemoryRecords(self.outboxes), f"{name}_{self.database}"
        shared, feed = RedisWriters(self.redis), RedisFeed(self.redis, self.client)
        if stall is not None:
            for owner in (store, shared, feed):
                stall.wrap(owner)
        breaker = SimpleNamespace(is_open=False)
        systems: Any = [SimpleNamespace(name=self.system, store=store, breaker=breaker)]
        writers = Writers(shared, full_name, self.clock)
        context = RelayContext(systems, self.routes, full_name, self.observed.append, self.clock)
        relays = PendingRelays(context, (feed, writers))
        return Replica(store, relays, writers)

    async def register(self, *names: str) -> list[Replica]:
        """Register replicas, once every earlier registration has expired."""
        replicas = [self.replica(name) for name in names]
        for _ in range(3):
            for replica in replicas:
                await replica.run()
            self.clock.now_s += EXPIRED_S + 1
        for replica in replicas:
            await replica.run()
        return replicas

    def routes(self, system: str) -> SystemRoutes:
        fragment = Fragment(system, self.database, "c", {}, {"main": ()})
        classes = {"c": SimpleNamespace(fragments=(fragment,))}
        databases: Any = {self.database: SimpleNamespace(classes=classes)}

        async def refresh() -> None: ...

        return SystemRoutes(system, lambda: RoutingModel(1, databases), refresh)

    def write(self, replica: Replica, id_: str = "x") -> str:
        self.number += 1
        change = Change(
            f"op{self.number}:main", self.database, "c", id_, "main", self.number, "update",
            None, {"n": self.number}, self.number, self.database,
        )  # fmt: skip
        self.outboxes[id_].append(change)
        replica.store.written_keys[self.database, "c", id_] = None
        return change.id

    async def until_tick(self) -> int:
        return (await self.feed.relayed_until(self.database)).get(self.system, -1)

    async def ids(self) -> list[str]:
        changes: list[Change] = []
        for partition in range(PARTITIONS):
            entries = await self.feed.read(self.database, partition, BEGINNING, 100_000)
            changes += [change for _, change in entries]
        return [change.id for change in sorted(changes, key=lambda c: c.version)]


class History:
    """Acknowledged changes, with a tick at or after each acknowledgement."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.acknowledged: dict[str, int] = {}
        self._feed_ids: set[str] = set()
        self._positions = [BEGINNING] * PARTITIONS

    async def work(self, replica: Replica, rounds: int) -> None:
        """Let a replica relay, sweep and write, for two seconds each time."""
        for _ in range(rounds):
            await replica.run()
            await self.write(replica)
            self.harness.clock.now_s += 2.0

    async def write(self, replica: Replica) -> None:
        """Write, and acknowledge if the replica may before and after."""
        target = self.harness.system, self.harness.database
        if replica.writers.may_acknowledge(*target):
            id_ = self.harness.write(replica, f"o{self.harness.number % 5}")
            if replica.writers.may_acknowledge(*target):
                self.acknowledged[id_] = await self.harness.feed.tick()

    async def check(self) -> None:
        """Check that the feed has all acknowledged changes below its complete tick."""
        until = await self.harness.until_tick()
        await self._read_feed()
        due = {id_ for id_, tick in self.acknowledged.items() if tick < until}
        assert due <= self._feed_ids

    async def _read_feed(self) -> None:
        feed, database = self.harness.feed, self.harness.database
        for partition, after in enumerate(self._positions):
            entries = await feed.read(database, partition, after, 100_000)
            self._feed_ids.update(change.id for _, change in entries)
            self._positions[partition] = entries[-1][0] if entries else after
