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
    """Records with their outboxes, of which each process knows those it has written."""

    sweep_every_s = 3600.0

    def __init__(self, outboxes: defaultdict[str, list[Change]]) -> None:
        self.outboxes = outboxes
        self.own: dict[tuple[str, str, str], None] = {}
        self.away = False
        self.sweeps = 0

    def take_written(self, limit: int) -> list[tuple[str, str, str]]:
        taken = list(self.own)[:limit]
        for where in taken:
            del self.own[where]
        return taken

    async def pending(self, fragment: Fragment, ids: Sequence[str]) -> list[UnrelayedChanges]:
        if self.away:
            raise StoreUnavailable("it is away")
        found = [(i, self.outboxes[i][:200]) for i in ids if self.outboxes[i]]
        for id_, some in found:
            if len(self.outboxes[id_]) > len(some):
                self.own[fragment.database, fragment.class_name, id_] = None
        return [
            UnrelayedChanges(fragment, i, some, True, len(some), len(some) == len(self.outboxes[i]))
            for i, some in found
        ]

    async def sweep(self, fragment: Fragment, after: str | None, limit: int) -> list[str]:
        self.sweeps += after is None
        waiting = (id_ for id_, own in self.outboxes.items() if own and id_ > (after or ""))
        return sorted(waiting)[:limit]

    async def acknowledge(self, done: Sequence[UnrelayedChanges]) -> None:
        for one in done:  # another relay may have acknowledged them
            self.outboxes[one.id][:] = [c for c in self.outboxes[one.id] if c not in one.changes]


class HandClock(SystemClock):
    """The monotonic time of all replicas, moved by the test."""

    def __init__(self) -> None:
        self.at = 100.0

    def monotonic(self) -> float:
        return self.at


class StallPoint:
    """At which of its calls a replica stalls: before the call is carried out, or after it."""

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
        self._left = step
        self._after = after

    def wrap(self, owner: Any) -> None:
        """Have the calls of an object counted."""
        for name in self.CALLS[type(owner)]:
            setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def counted(*args: Any) -> Any:
            self._left -= 1
            if self._left:
                return await call(*args)
            if not self._after:
                await self._stand()
                return await call(*args)
            answer = await call(*args)
            await self._stand()
            return answer

        return counted

    async def _stand(self) -> None:
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
        store, full = MemoryRecords(self.outboxes), f"{name}_{self.database}"
        shared, feed = RedisWriters(self.redis), RedisFeed(self.redis, self.client)
        if stall is not None:
            for owner in (store, shared, feed):
                stall.wrap(owner)
        breaker = SimpleNamespace(is_open=False)
        systems: Any = [SimpleNamespace(name=self.system, store=store, breaker=breaker)]
        writers = Writers(shared, full, self.clock)
        context = RelayContext(systems, self.routes, full, self.observed.append, self.clock)
        relays = PendingRelays(context, (feed, writers))
        return Replica(store, relays, writers)

    async def registered(self, *names: str) -> list[Replica]:
        """Return replicas that are registered, once every earlier registration has expired."""
        replicas = [self.replica(name) for name in names]
        for _ in range(3):
            for replica in replicas:
                await replica.run()
            self.clock.at += EXPIRED_S + 1
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
        replica.store.own[self.database, "c", id_] = None
        return change.id

    async def until_tick(self) -> int:
        return (await self.feed.relayed_until(self.database)).get(self.system, -1)

    async def ids(self) -> list[str]:
        found: list[Change] = []
        for partition in range(PARTITIONS):
            entries = await self.feed.read(self.database, partition, BEGINNING, 100_000)
            found += [change for _, change in entries]
        return [change.id for change in sorted(found, key=lambda c: c.version)]


class History:
    """What was acknowledged, with a tick of that moment or later."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.acknowledged: dict[str, int] = {}
        self._found: set[str] = set()
        self._read = [BEGINNING] * PARTITIONS

    async def work(self, replica: Replica, rounds: int) -> None:
        """Let a replica write, relay and look after others, for two seconds each time."""
        for _ in range(rounds):
            await replica.run()
            await self.write(replica)
            self.harness.clock.at += 2.0

    async def write(self, replica: Replica) -> None:
        """Write, and acknowledge that if it may be before and after."""
        of = self.harness.system, self.harness.database
        if replica.writers.may_acknowledge(*of):
            id_ = self.harness.write(replica, f"o{self.harness.number % 5}")
            if replica.writers.may_acknowledge(*of):
                self.acknowledged[id_] = await self.harness.feed.tick()

    async def check(self) -> None:
        """See that the feed has what was acknowledged up to where it is called complete."""
        until = await self.harness.until_tick()
        await self._read_on()
        due = {id_ for id_, tick in self.acknowledged.items() if tick < until}
        assert due <= self._found

    async def _read_on(self) -> None:
        feed, database = self.harness.feed, self.harness.database
        for partition, after in enumerate(self._read):
            entries = await feed.read(database, partition, after, 100_000)
            self._found.update(change.id for _, change in entries)
            self._read[partition] = entries[-1][0] if entries else after
