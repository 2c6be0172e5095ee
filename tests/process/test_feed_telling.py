"""What relays of records tell the feed of how far they are, with records in memory."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from mediator.changes.feed import BEGINNING, Account
from mediator.changes.model import Change
from mediator.changes.partitions import PARTITIONS
from mediator.changes.pending_relays import PendingRelays
from mediator.changes.routes import SystemRoutes
from mediator.clock import SystemClock
from mediator.coordination.connecting import connect, line_to
from mediator.coordination.feed import RedisFeed
from mediator.observation import ChangesRelayed, FeedFellBack, FeedGapFound, Observation
from mediator.placement.routing import RoutingModel
from mediator.stores.port import Fragment, StoreUnavailable, SystemConfig, Unsettled


class MemoryRecords:
    """Records with their outboxes, of which each process knows those it has written."""

    sweep_every_s = 3600.0

    def __init__(self, outboxes: defaultdict[str, list[Change]]) -> None:
        self.outboxes = outboxes
        self.own: dict[tuple[str, str, str], None] = {}
        self.away = False
        self.sweeps = 0

    def written(self, limit: int) -> list[tuple[str, str, str]]:
        taken = list(self.own)[:limit]
        for where in taken:
            del self.own[where]
        return taken

    async def pending(self, fragment: Fragment, ids: Sequence[str]) -> list[Unsettled]:
        if self.away:
            raise StoreUnavailable("it is away")
        found = [(i, self.outboxes[i][:200]) for i in ids if self.outboxes[i]]
        for id_, some in found:
            if len(self.outboxes[id_]) > len(some):
                self.own[fragment.database, fragment.class_name, id_] = None
        return [Unsettled(fragment, id_, some, True, len(some)) for id_, some in found]

    async def sweep(self, fragment: Fragment, after: str | None, limit: int) -> list[str]:
        self.sweeps += after is None
        waiting = (id_ for id_, own in self.outboxes.items() if own and id_ > (after or ""))
        return sorted(waiting)[:limit]

    async def settle(self, done: Sequence[Unsettled]) -> None:
        for one in done:
            del self.outboxes[one.id][: one.receipt]


class Bench:
    """One database in records, and replicas that write there."""

    def __init__(self, url: str) -> None:
        self.redis = connect(url)
        self.line = line_to(url)
        self.feed = RedisFeed(self.redis, self.line)
        self.database = f"d{uuid.uuid4().hex[:12]}"
        self.outboxes: defaultdict[str, list[Change]] = defaultdict(list)
        self.observed: list[Observation] = []
        self.number = 0

    def replica(self, name: str) -> tuple[MemoryRecords, PendingRelays]:
        store = MemoryRecords(self.outboxes)
        breaker = SimpleNamespace(is_open=False)
        systems: Any = [SimpleNamespace(name="mongo", store=store, breaker=breaker)]
        return store, PendingRelays(
            systems, self.routes, self.feed, name, self.observed.append, SystemClock()
        )

    def routes(self, system: str) -> SystemRoutes:
        fragment = Fragment(system, self.database, "c", {}, {"main": ()})
        classes = {"c": SimpleNamespace(fragments=(fragment,))}
        databases: Any = {self.database: SimpleNamespace(classes=classes)}

        async def refresh() -> None: ...

        return SystemRoutes(system, lambda: RoutingModel(1, databases), refresh)

    def write(self, store: MemoryRecords, id_: str = "x") -> str:
        self.number += 1
        change = Change(
            f"op{self.number}:main", self.database, "c", id_, "main", self.number, "update",
            None, {"n": self.number}, self.number, self.database,
        )  # fmt: skip
        self.outboxes[id_].append(change)
        store.own[self.database, "c", id_] = None
        return change.id

    async def until_us(self) -> int:
        return (await self.feed.relayed_until(self.database)).get("mongo", 0)

    async def ids(self) -> list[str]:
        found: list[Change] = []
        for partition in range(PARTITIONS):
            told = await self.feed.read(self.database, partition, BEGINNING, 100_000)
            found += [change for _, change in told]
        return [change.id for change in sorted(found, key=lambda c: c.version)]


@pytest.fixture
async def bench(redis_config: SystemConfig) -> AsyncIterator[Bench]:
    bench = Bench(redis_config.url)
    yield bench
    keys = [key async for key in bench.redis.scan_iter(f"*{bench.database}*")]
    if keys:
        await bench.redis.delete(*keys)
    await bench.line.close()
    await bench.redis.aclose()


async def test_what_is_brought_is_told(bench: Bench) -> None:
    store, relays = bench.replica("one")
    before_us = await bench.feed.now_us()
    ids = [bench.write(store, f"o{n % 5}") for n in range(1_500)]
    while not await bench.until_us() > before_us:
        await relays.run()
    assert await bench.ids() == ids
    assert sum(o.count for o in bench.observed if isinstance(o, ChangesRelayed)) == 1_500


async def test_nothing_is_complete_before_the_first_sweep(bench: Bench) -> None:
    dead, _ = bench.replica("dead")
    ids = [bench.write(dead)]
    store, relays = bench.replica("one")
    store.away = True
    with pytest.raises(StoreUnavailable):
        await relays.run()
    assert await bench.until_us() == 0
    store.away = False
    await relays.run()
    assert await bench.ids() == ids
    assert await bench.until_us() > 0


async def test_a_replica_that_lags_holds_the_time_back(bench: Bench) -> None:
    slow_store, slow = bench.replica("slow")
    _, quick = bench.replica("quick")
    await slow.run()
    await quick.run()
    last_us = await bench.until_us()
    bench.write(slow_store)
    for _ in range(3):
        await quick.run()
    assert await bench.until_us() <= last_us
    await slow.run()
    await quick.run()
    assert await bench.until_us() > last_us


async def test_a_replica_that_died_is_swept_after_and_retired(bench: Bench) -> None:
    dead_store, dead = bench.replica("dead")
    store, relays = bench.replica("one")
    await dead.run()
    await relays.run()
    sweeps = store.sweeps
    ids = [bench.write(dead_store)]
    gone_us = await bench.feed.now_us() - 60_000_000
    await bench.feed.publish_own(bench.database, Account("mongo", "dead"), gone_us)
    await relays.run()
    assert store.sweeps > sweeps
    assert await bench.ids() == ids
    assert await bench.until_us() > gone_us + 30_000_000


async def test_a_replica_that_was_retired_and_lives_goes_on(bench: Bench) -> None:
    """A system that was away for long leaves all replicas quiet; the first one back retires all."""
    store, quiet = bench.replica("quiet")
    _, relays = bench.replica("one")
    ids = [bench.write(store)]
    await quiet.run()
    await relays.run()
    life = await bench.feed.incarnation(bench.database)
    gone_us = await bench.feed.now_us() - 60_000_000
    await bench.feed.retire(bench.database, Account("mongo", "one"), gone_us + 120_000_000)
    for _ in range(2):
        ids.append(bench.write(store))
        await quiet.run()
    assert await bench.ids() == ids
    assert FeedFellBack("mongo") not in bench.observed
    assert await bench.feed.incarnation(bench.database) == life, "followers go on"


async def test_a_replica_that_ends_is_not_waited_for(bench: Bench) -> None:
    store, relays = bench.replica("ends")
    _, other = bench.replica("one")
    await relays.run()
    await other.run()
    ids = [bench.write(store)]
    await relays.close()
    assert await bench.ids() == ids
    last_us = await bench.until_us()
    await other.run()
    assert await bench.until_us() > last_us


async def test_what_a_feed_has_lost_is_brought_before_anything_else(bench: Bench) -> None:
    store, relays = bench.replica("one")
    ids = [bench.write(store) for _ in range(3)]
    await relays.run()
    keys = [key async for key in bench.redis.scan_iter(f"*{bench.database}*")]
    older = {key: await bench.redis.dump(key) or b"" for key in keys}
    ids += [bench.write(store) for _ in range(3)]
    await relays.run()
    life = await bench.feed.incarnation(bench.database)
    for key in keys:
        await bench.redis.restore(key, 0, older[key], replace=True)
    ids += [bench.write(store) for _ in range(3)]
    await relays.run()
    assert await bench.ids() == ids
    assert FeedFellBack("mongo") in bench.observed
    # What is brought again may stand before positions that were given before.
    assert await bench.feed.incarnation(bench.database) != life
    assert not any(isinstance(o, FeedGapFound) for o in bench.observed)
    await relays.run()
    assert bench.observed.count(FeedFellBack("mongo")) == 1
