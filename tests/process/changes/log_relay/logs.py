"""A log in memory, feeds that fail or record, and a harness for the relay of logs."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import orjson

from mediator.base.lease import Lease
from mediator.changes.feed import BEGINNING, PARTITIONS, Feed
from mediator.changes.log_relay import LogRelay, RelayResult
from mediator.changes.routes import SystemRoutes
from mediator.coordination.connecting import client_of, connect
from mediator.coordination.feed import RedisFeed
from mediator.coordination.leases import Leases
from mediator.model.change import Change
from mediator.routing.model import RoutingModel
from mediator.stores.port import Fragment, FragmentOf, LogEntry, LogPage


class MemoryLog:
    """Two logs in lists, which fail on demand."""

    def __init__(self) -> None:
        self.entries: dict[str, list[tuple[str, Change]]] = {"0": [], "1": []}
        self.reads: list[tuple[str, str | None]] = []
        self.pause: Callable[[], Awaitable[None]] | None = None
        self.large: dict[str, str] = {}
        self._next = 0

    def write(self, database: str, object_id: str = "x", log: str = "0") -> Change:
        self._next += 1
        change = Change(
            f"op{self._next}:main", database, "c", object_id, "main", self._next, "update",
            {"n": self._next - 1}, {"n": self._next, **self.large}, self._next, database,
        )  # fmt: skip
        self.entries[log].append((f"{self._next:020d}", change))
        return change

    def logs(self) -> Sequence[str]:
        return ("0", "1")

    async def changes(
        self, log: str, after: str | None, limit: int, fragment_of: FragmentOf
    ) -> LogPage:
        self.reads.append((log, after))
        stored = [e for e in self.entries[log] if e[0] > (after or "")][:limit]
        if self.pause is not None:
            await self.pause()
        items = [(p, c if fragment_of(c.database, c.class_name) else None) for p, c in stored]
        size = len(orjson.dumps(self.large))
        entries = [LogEntry(position, change, size) for position, change in items]
        return LogPage(entries, is_last=len(entries) < limit)

    async def oldest(self, log: str) -> str | None:
        return self.entries[log][0][0] if self.entries[log] else None

    async def trim(self, log: str, upto: str, keep_s: float) -> int:
        assert keep_s > 0
        before = len(self.entries[log])
        self.entries[log] = [e for e in self.entries[log] if e[0] > upto]
        return before - len(self.entries[log])


class LateLog(MemoryLog):
    """A log that withholds writes from a number on."""

    numbers = (0, 0)

    async def horizon(self) -> tuple[int, int]:
        return self.numbers


EAGER, IDLE, DEFAULT = 0, 10**12, 200_000


class RecordingFeed:
    """A feed that records the databases of its appends."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self.appended: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._feed, name)

    async def append(self, database: str, *args: Any) -> int:
        self.appended.append(database)
        return await self._feed.append(database, *args)


class Harness:
    """Databases on one system, their feeds, and relays that compete for a lease."""

    def __init__(self, url: str) -> None:
        self.redis = connect(url)
        self.client = client_of(url)
        self.feed: Feed = RedisFeed(self.redis, self.client)
        self.leases = Leases(self.redis)
        tag = uuid.uuid4().hex[:10]
        self.databases = [f"a{tag}", f"b{tag}"]
        self.routed_databases = list(self.databases)
        self.system = f"s{tag}"
        self.log = MemoryLog()

    def model(self) -> RoutingModel:
        def route(database: str) -> Any:
            fragment = Fragment(self.system, database, "c", {}, {"main": ()})
            return SimpleNamespace(classes={"c": SimpleNamespace(fragments=(fragment,))})

        return RoutingModel(1, {name: route(name) for name in self.routed_databases})

    async def refresh(self) -> None:
        self.routed_databases = list(self.databases)

    async def relay(
        self, token: str = "one", feed: Feed | None = None, pace_us: int = EAGER
    ) -> LogRelay:
        """Start a relay that takes the lease, as the holder's successor does."""
        lease = Lease(f"relay:{self.system}", token)
        await self.redis.set(lease.key, token)
        routes = SystemRoutes(self.system, self.model, self.refresh)
        return LogRelay(self.log, feed or self.feed, routes, lease, pace_us)

    async def ids(self, database: str) -> list[str]:
        """Return the ids in a feed by version; check that the versions of each object rise."""
        all_entries: list[tuple[str, Change]] = []
        for partition in range(PARTITIONS):
            entries = await self.feed.read(database, partition, BEGINNING, 100_000)
            all_entries += entries
            last_versions: dict[str, int] = {}
            for _, change in entries:
                assert last_versions.get(change.object_id, 0) < change.version
                last_versions[change.object_id] = change.version
        return [c.id for _, c in sorted(all_entries, key=lambda pair: pair[1].version)]

    async def close(self) -> None:
        for name in (*self.databases, self.system):
            keys = [key async for key in self.redis.scan_iter(f"*{name}*")]
            if keys:
                await self.redis.delete(*keys)
        await self.client.close()
        await self.redis.aclose()


class FailingFeed:
    """A feed whose chosen call fails, before or after it takes effect."""

    def __init__(self, feed: Feed, name: str, number: int, *, after: bool) -> None:
        self._feed = feed
        self._name = name
        self._number = number
        self._after = after

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._feed, name)
        if name != self._name:
            return method

        async def call(*args: Any) -> Any:
            self._number -= 1
            if self._number == 0 and not self._after:
                raise ConnectionError
            result = await method(*args)
            if self._number == 0:
                raise ConnectionError
            return result

        return call


def cursor_of(change: Change) -> str:
    return f"{change.version:020d}"


async def drain(relay: LogRelay) -> RelayResult:
    while True:
        result = await relay.relay()
        if not result.read:
            return result


async def is_beyond(harness: Harness, relay: LogRelay, database: str, tick: int) -> bool:
    await relay.relay()
    return (await harness.feed.relayed_until(database))[harness.system] > tick
