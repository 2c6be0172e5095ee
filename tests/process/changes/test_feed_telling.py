"""What relays of records tell the feed of how far they are, with records in memory."""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from mediator.base.clock import SystemClock
from mediator.base.concurrency import end
from mediator.base.observation import ChangesRelayed, FeedGapFound, FeedRollbackFound, Observation
from mediator.changes.feed import BEGINNING, PARTITIONS
from mediator.changes.pending_relays import PendingRelays
from mediator.changes.routes import RelayContext, SystemRoutes
from mediator.changes.writers import EXPIRED_S, LEASE_S, Writers
from mediator.coordination.connecting import client_of, connect
from mediator.coordination.feed import RedisFeed
from mediator.coordination.writers import RECOVERED, WRITERS, RedisWriters
from mediator.model.change import Change
from mediator.routing.model import RoutingModel
from mediator.stores.port import Fragment, StoreUnavailable, SystemConfig, UnrelayedChanges


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
        return [UnrelayedChanges(fragment, id_, some, True, len(some)) for id_, some in found]

    async def sweep(self, fragment: Fragment, after: str | None, limit: int) -> list[str]:
        self.sweeps += after is None
        waiting = (id_ for id_, own in self.outboxes.items() if own and id_ > (after or ""))
        return sorted(waiting)[:limit]

    async def acknowledge(self, done: Sequence[UnrelayedChanges]) -> None:
        for one in done:  # somebody else may have acknowledged them
            self.outboxes[one.id][:] = [c for c in self.outboxes[one.id] if c not in one.changes]


class HandClock(SystemClock):
    """The monotonic time of all replicas, moved by the test."""

    def __init__(self) -> None:
        self.at = 100.0

    def monotonic(self) -> float:
        return self.at


class Fate:
    """At which of its calls a replica stands still: before that is carried out, or after."""

    CALLS = (
        *(
            "pending",
            "acknowledge",
            "settle",
            "sweep",
            "register",
            "renew",
            "revoke",
            "look",
            "tick",
        ),
        *("settle", "append_newer", "settled", "publish_progress", "accounts", "retire"),
    )

    def __init__(self, step: int, *, after: bool) -> None:
        self.stands, self.goes_on = asyncio.Event(), asyncio.Event()
        self._left = step
        self._after = after

    def wrap(self, owner: Any) -> None:
        """Have the calls of an object counted."""
        for name in self.CALLS:
            if hasattr(owner, name):
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
        self.stands.set()
        await self.goes_on.wait()


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


class Bench:
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

    def replica(self, name: str, fate: Fate | None = None) -> Replica:
        store, full = MemoryRecords(self.outboxes), f"{name}_{self.database}"
        shared, feed = RedisWriters(self.redis), RedisFeed(self.redis, self.client)
        if fate is not None:
            for owner in (store, shared, feed):
                fate.wrap(owner)
        breaker = SimpleNamespace(is_open=False)
        systems: Any = [SimpleNamespace(name=self.system, store=store, breaker=breaker)]
        writers = Writers(shared, full, self.clock)
        context = RelayContext(systems, self.routes, full, self.observed.append, self.clock)
        relays = PendingRelays(context, (feed, writers))
        return Replica(store, relays, writers)

    async def settled(self, *names: str) -> list[Replica]:
        """Return replicas that are registered, once nobody else can have been."""
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
    await bench.client.close()
    await bench.redis.aclose()


async def test_what_is_brought_is_told(bench: Bench) -> None:
    [one] = await bench.settled("one")
    before = await bench.feed.tick()
    ids = [bench.write(one, f"o{n % 5}") for n in range(1_500)]
    while not await bench.until_tick() > before:
        await one.run()
    assert await bench.ids() == ids
    assert sum(o.count for o in bench.observed if isinstance(o, ChangesRelayed)) == 1_500


async def test_nothing_is_complete_before_the_first_sweep(bench: Bench) -> None:
    """Nor before whoever may have been forgotten by the server holds no lease any more."""
    ids = [bench.write(bench.replica("dead"))]
    one = bench.replica("one")
    await one.run()
    assert await bench.until_tick() < 0
    bench.clock.at += EXPIRED_S + 1
    ids.append(bench.write(bench.replica("forgotten")))
    one.store.away = True
    with pytest.raises(StoreUnavailable):
        await one.run()
    assert await bench.until_tick() < 0
    one.store.away = False
    for _ in range(2):
        await one.run()
    assert await bench.ids() == ids
    assert await bench.until_tick() > 0


async def test_a_replica_that_lags_holds_the_time_back(bench: Bench) -> None:
    slow, quick = await bench.settled("slow", "quick")
    last = await bench.until_tick()
    bench.write(slow)
    for _ in range(3):
        await quick.run()
        await slow.writers.renew()
        bench.clock.at += LEASE_S - 1
    assert await bench.until_tick() <= last
    await slow.run()
    await quick.run()
    assert await bench.until_tick() > last


async def test_a_replica_that_died_is_swept_after_and_retired(bench: Bench) -> None:
    dead, one = await bench.settled("dead", "one")
    last, sweeps = await bench.until_tick(), one.store.sweeps
    ids = [bench.write(dead)]
    await one.run()
    bench.clock.at += LEASE_S
    await one.run()
    assert await bench.until_tick() <= last, "it may acknowledge to the end of its lease"
    bench.clock.at += EXPIRED_S
    for _ in range(3):
        await one.run()
    assert one.store.sweeps > sweeps
    assert await bench.ids() == ids
    assert await bench.until_tick() > last


async def test_a_replica_that_is_cut_off_acknowledges_no_more_than_others_wait_for(
    bench: Bench,
) -> None:
    """Whatever it acknowledged is below no tick that is told without it."""
    cut, one = await bench.settled("cut", "one")
    assert cut.writers.may_acknowledge(bench.system, bench.database)
    acknowledged: list[str] = []
    for _ in range(40):
        bench.clock.at += 0.5
        if cut.writers.may_acknowledge(bench.system, bench.database):
            acknowledged.append(bench.write(cut))
            last = await bench.feed.tick()
        await one.run()
        if await bench.until_tick() > last:
            assert await bench.ids() == acknowledged
    assert acknowledged
    assert await bench.until_tick() > last


async def test_a_replica_that_was_retired_and_lives_goes_on(bench: Bench) -> None:
    quiet, one = await bench.settled("quiet", "one")
    ids = [bench.write(quiet)]
    await quiet.run()
    await one.run()
    life = await bench.feed.generation(bench.database)
    for _ in range(2):
        bench.clock.at += EXPIRED_S + 1
        await one.run()
    assert not quiet.writers.may_acknowledge(bench.system, bench.database)
    await quiet.writers.renew()
    assert not quiet.writers.may_acknowledge(bench.system, bench.database), "no feed counts it"
    for _ in range(2):
        await quiet.run()
        assert quiet.writers.may_acknowledge(bench.system, bench.database)
        ids.append(bench.write(quiet))
        written = await bench.feed.tick()
        await one.run()
        assert await bench.until_tick() < written, "it is counted again"
    await quiet.run()
    assert await bench.ids() == ids
    assert FeedRollbackFound(bench.system) not in bench.observed
    assert await bench.feed.generation(bench.database) == life, "followers go on"


async def test_a_replica_that_ends_is_not_waited_for(bench: Bench) -> None:
    ends, other = await bench.settled("ends", "one")
    ids = [bench.write(ends)]
    await ends.relays.close()
    assert not ends.writers.may_acknowledge(bench.system, bench.database)
    assert await bench.ids() == ids
    last = await bench.until_tick()
    await other.run()
    assert await bench.until_tick() > last


async def test_another_run_of_the_server_is_waited_out(bench: Bench) -> None:
    """It may lack the registration of a replica that holds its lease, and is cut off."""
    forgotten, one = await bench.settled("forgotten", "one")
    await bench.redis.hdel(WRITERS, f"forgotten_{bench.database}")
    await bench.redis.hset(RECOVERED, bench.system, "the last run")
    last = await bench.until_tick()
    await one.run()
    ids = [bench.write(forgotten)]
    bench.clock.at += LEASE_S
    await one.run()
    assert await bench.until_tick() <= last
    bench.clock.at += EXPIRED_S
    for _ in range(2):
        await one.run()
    assert await bench.ids() == ids
    assert await bench.until_tick() > last


async def test_what_a_feed_has_lost_is_brought_before_anything_else(bench: Bench) -> None:
    [one] = await bench.settled("one")
    ids = [bench.write(one) for _ in range(3)]
    await one.run()
    keys = [key async for key in bench.redis.scan_iter(f"*{bench.database}*")]
    older = {key: await bench.redis.dump(key) or b"" for key in keys}
    ids += [bench.write(one) for _ in range(3)]
    await one.run()
    life = await bench.feed.generation(bench.database)
    for key in keys:
        await bench.redis.restore(key, 0, older[key], replace=True)
    ids += [bench.write(one) for _ in range(3)]
    await one.run()
    assert await bench.ids() == ids
    assert FeedRollbackFound(bench.system) in bench.observed
    # What is brought again may stand before positions that were given before.
    assert await bench.feed.generation(bench.database) != life
    assert not any(isinstance(o, FeedGapFound) for o in bench.observed)
    await one.run()
    assert bench.observed.count(FeedRollbackFound(bench.system)) == 1


class History:
    """What was acknowledged, with a tick of that moment or later."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.acknowledged: dict[str, int] = {}
        self._found: set[str] = set()
        self._read = [BEGINNING] * PARTITIONS

    async def live(self, replica: Replica, rounds: int) -> None:
        """Let a replica write, relay and look after others, for two seconds each time."""
        for _ in range(rounds):
            await replica.run()
            await self.write(replica)
            self.bench.clock.at += 2.0

    async def write(self, replica: Replica) -> None:
        """Write, and acknowledge that if it may be before and after."""
        of = self.bench.system, self.bench.database
        if replica.writers.may_acknowledge(*of):
            id_ = self.bench.write(replica, f"o{self.bench.number % 5}")
            if replica.writers.may_acknowledge(*of):
                self.acknowledged[id_] = await self.bench.feed.tick()

    async def check(self) -> None:
        """See that the feed has what was acknowledged up to where it is told to be complete."""
        until = await self.bench.until_tick()
        await self._read_on()
        due = {id_ for id_, tick in self.acknowledged.items() if tick < until}
        assert due <= self._found

    async def _read_on(self) -> None:
        feed, database = self.bench.feed, self.bench.database
        for partition, after in enumerate(self._read):
            told = await feed.read(database, partition, after, 100_000)
            self._found.update(change.id for _, change in told)
            self._read[partition] = told[-1][0] if told else after


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("lives", [False, True], ids=["killed", "stalled"])
async def test_nothing_is_missing_whenever_a_replica_stands_still(
    bench: Bench, *, after: bool, lives: bool
) -> None:
    """At every call to what replicas share, for longer than a lease; while another one has died."""
    [one] = await bench.settled("one")
    step, history = 0, History(bench)
    ended = False
    while not ended:
        step += 1
        dead, fate = bench.replica(f"dead{step}"), Fate(step, after=after)
        await history.live(dead, 1)
        await history.write(dead)
        victim = bench.replica(f"victim{step}", fate)
        life = asyncio.create_task(history.live(victim, 3))
        stands = asyncio.create_task(fate.stands.wait())
        await asyncio.wait({life, stands}, return_when=asyncio.FIRST_COMPLETED)
        ended = not fate.stands.is_set()
        for _ in range(5):
            await history.live(one, 1)
            await history.check()
        if lives:
            fate.goes_on.set()
            while not life.done():
                await history.live(one, 1)
                await history.check()
        await end([life, stands])
    await one.run()
    await history.check()
    assert step > 20
    assert history.acknowledged.keys() <= set(await bench.ids())
    assert await bench.until_tick() > max(history.acknowledged.values())
