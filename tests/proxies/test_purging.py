"""Purges on their way from the queue to caches, including real ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import httpx
import pytest

from benchmarks.harness.varnish import Varnish
from sketch.filter.shape import FilterShape
from sketch.memory.server import MemorySketch
from sketch.protocol.port import Partition, Purge, SketchLimits, SketchUnavailable
from sketch.purging.port import (
    PurgeEvent,
    PurgeQueueUnanswered,
    Purger,
    PurgerChanged,
    PurgesFailed,
    PurgesSent,
    PurgesWaiting,
)
from sketch.purging.purgers import TagPurger, UrlPurger
from sketch.purging.purgers import varnish as varnish_api
from sketch.purging.sender import PurgingLimits
from sketch.purging.waiting import WaitingKeys
from sketch.purging.worker import Purging
from tests.proxies.nginx import Nginx
from tests.proxies.scripted_purger import PassingTime, ScriptedPurger
from tests.proxies.small_origin import Origin

PARTITION = Partition("news", "articles")
TTL_S = 10_000.0
F_S = 100.0
LEASE_S = 10.0
QUICK = PurgingLimits(look_every_s=0.01, first_wait_s=0.01, max_wait_s=0.05, deadline_s=60.0)


class Writes:
    """Writes records with cached copies; `advance` moves the sketch's clock."""

    def __init__(self) -> None:
        self._now_us = 1_800_000_000_000_000
        self._tokens = 0
        limits = SketchLimits(max_ttl_s=TTL_S, purge_repeat_s=F_S, purge_lease_s=LEASE_S)
        self.sketch = MemorySketch(limits, FilterShape(8_192, 4, 7), lambda: self._now_us)

    def advance(self, seconds: float) -> None:
        self._now_us += round(seconds * 1_000_000)

    async def write(self, *keys: str) -> None:
        await self.sketch.create(PARTITION)
        await self.sketch.report_read(PARTITION, keys, TTL_S)
        self._tokens += 1
        await self.sketch.begin(PARTITION, keys, str(self._tokens))
        await self.sketch.end(PARTITION, str(self._tokens), {})
        self.advance(0.001)

    async def take_all(self) -> set[str]:
        """Let all leases end; take all outstanding purges, and return their keys."""
        self.advance(LEASE_S)
        return {purge.key for purge in await self.sketch.take_purges([PARTITION], 10_000)}


@pytest.fixture
def writes() -> Writes:
    return Writes()


@asynccontextmanager
async def purging(
    writes: Writes,
    *purgers: Purger,
    limits: PurgingLimits = QUICK,
    on_event: Callable[[PurgeEvent], None] = lambda event: None,
) -> AsyncIterator[Purging]:
    """Send purges in the background."""
    worker = Purging(writes.sketch, purgers, lambda: [PARTITION], on_event, limits)
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await worker.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # there is no event to wait for
            await asyncio.sleep(0.005)


def keys_sent(purger: ScriptedPurger) -> list[str]:
    return [key for request in purger.sent for key in request]


async def test_a_purge_is_acknowledged_when_all_purgers_have_confirmed_it(writes: Writes) -> None:
    events: list[PurgeEvent] = []
    one, other = ScriptedPurger("one"), ScriptedPurger("other")
    await writes.write("articles/a#main", "articles/b#main")
    async with purging(writes, one, other, on_event=events.append):
        await until(lambda: PurgesWaiting(0, 0.0, 0) in events)
    for purger in (one, other):
        assert sorted(keys_sent(purger)) == ["articles/a#main", "articles/b#main"]
    assert {e.purger for e in events if isinstance(e, PurgesSent)} == {"one", "other"}
    assert await writes.take_all() == set()
    writes.advance(2 * F_S)
    assert await writes.take_all() == {"articles/a#main", "articles/b#main"}


async def test_a_purge_is_repeated_once_after_the_maximum_duration_of_a_fill(
    writes: Writes,
) -> None:
    purger, events = ScriptedPurger("one"), list[PurgeEvent]()
    empty_queue = PurgesWaiting(0, 0.0, 0)
    await writes.write("articles/a#main")
    async with purging(writes, purger, on_event=events.append):
        await until(lambda: events.count(empty_queue) == 1)
        writes.advance(2 * F_S)
        await until(lambda: events.count(empty_queue) == 2)
        writes.advance(2 * F_S)
    assert len(purger.sent) == 2
    assert await writes.take_all() == set()


async def test_a_purge_that_not_all_purgers_have_confirmed_is_repeated(writes: Writes) -> None:
    events: list[PurgeEvent] = []
    good, bad = ScriptedPurger("good"), ScriptedPurger("bad", broken=True)
    await writes.write("articles/a#main")
    async with purging(writes, good, bad, on_event=events.append):
        await until(lambda: PurgesFailed("bad", 1, "refused", 503) in events)
        await until(lambda: any(isinstance(e, PurgesWaiting) and e.keys for e in events))
        assert keys_sent(good) == ["articles/a#main"]
        bad.broken = False

        def is_handed_out() -> bool:
            writes.advance(LEASE_S)
            return keys_sent(bad)[:1] == ["articles/a#main"]

        await until(is_handed_out)
        await until(lambda: any(isinstance(e, PurgesWaiting) and e.repeated for e in events))
        await until(lambda: isinstance(events[-1], PurgesWaiting) and events[-1].keys == 0)
    changes = [event.down for event in events if isinstance(event, PurgerChanged)]
    assert changes == [True, False]


async def test_a_purge_that_one_purger_has_confirmed_is_sent_only_to_the_others(
    writes: Writes,
) -> None:
    events: list[PurgeEvent] = []
    good, bad = ScriptedPurger("good"), ScriptedPurger("bad", broken=True)

    async def hand_out_again() -> None:
        """Let a lease end, and wait until all purges were handed out again, and processed."""
        count = len(events)
        writes.advance(LEASE_S)
        await until(
            lambda: any(isinstance(e, PurgesWaiting) and e.repeated for e in events[count:])
        )

    await writes.write("articles/a#main")
    async with purging(writes, good, bad, on_event=events.append):
        await until(lambda: any(isinstance(e, PurgesWaiting) and e.keys for e in events))
        for _ in range(3):
            await hand_out_again()
        assert keys_sent(good) == ["articles/a#main"]
        await writes.write("articles/a#main")
        await until(lambda: len(good.sent) == 2)
        writes.advance(2 * F_S)
        await until(lambda: len(good.sent) == 3)
        await hand_out_again()
        bad.broken = False

        def is_done() -> bool:
            writes.advance(LEASE_S / 10)
            return isinstance(events[-1], PurgesWaiting) and events[-1].keys == 0

        await until(is_done)
    assert keys_sent(good) == 3 * ["articles/a#main"]
    assert set(keys_sent(bad)) == {"articles/a#main"}
    assert await writes.take_all() == set()


def test_a_key_waits_until_the_last_purge_that_was_taken_is_acknowledged() -> None:
    first, later = (Purge(PARTITION, "articles/a#main", ticket) for ticket in (1, 2))
    waiting = WaitingKeys()
    for now, purge in ((0.0, first), (1.0, later)):
        waiting.take(now, [purge])
    for purge in (later, first):  # their requests may end in any order
        waiting.confirm("one", [purge])
    waiting.forget([first])
    assert waiting.is_confirmed("one", later)
    assert waiting.event(1.0) == PurgesWaiting(1, 1.0, 1)
    waiting.forget([later])
    assert waiting.event(1.0) == PurgesWaiting(0, 0.0, 0)


async def test_purges_that_a_purger_misses_end_with_the_copies(writes: Writes) -> None:
    async with purging(writes, ScriptedPurger("bad", broken=True)):
        for number in range(20):
            await writes.write(f"articles/{number}#main")
            writes.advance(TTL_S / 4)
        (state,) = await writes.sketch.states([PARTITION])
    assert 0 < state.purges <= 5


async def test_a_hanging_purger_does_not_delay_others(writes: Writes) -> None:
    limits = replace(QUICK, batch=2, deadline_s=0.2, first_wait_s=1_000.0, max_wait_s=1_000.0)
    good, hanging = ScriptedPurger("good"), ScriptedPurger("hanging", hanging=True)
    keys = [f"articles/{number}#main" for number in range(40)]
    async with purging(writes, good, hanging, limits=limits):
        for key in keys:
            await writes.write(key)
        await until(lambda: set(keys_sent(good)) == set(keys))
        assert hanging.sent == []
    assert await writes.take_all() == set(keys)


async def test_a_slow_purger_gets_a_bounded_number_of_batches(writes: Writes) -> None:
    slow = ScriptedPurger("slow", hanging=True)
    limits = replace(QUICK, batch=1, at_once=2, deadline_s=1_000.0, look_every_s=0.0)
    await writes.write(*(f"articles/{number}#main" for number in range(5)))
    async with purging(writes, slow, limits=limits):
        await until(lambda: slow.attempts >= 2)
        for _ in range(20):
            await asyncio.sleep(0)
    assert slow.attempts == 2


async def test_no_purge_is_taken_while_every_purger_fails(writes: Writes) -> None:
    failing = ScriptedPurger("failing", broken=True)
    limits = replace(QUICK, batch=1, attempts=1, first_wait_s=1_000.0, max_wait_s=1_000.0)
    async with purging(writes, failing, limits=limits):
        await writes.write("articles/a#main")
        await until(lambda: failing.attempts == 1)
        await writes.write("articles/b#main")
        for _ in range(10):
            await asyncio.sleep(0)
    assert {p.key for p in await writes.sketch.take_purges([PARTITION], 10)} == {"articles/b#main"}


async def test_requests_name_as_many_keys_as_the_purger_takes(writes: Writes) -> None:
    purger = ScriptedPurger("few", max_keys=3)
    await writes.write(*(f"articles/{number}#main" for number in range(8)))
    async with purging(writes, purger):
        await until(lambda: len(keys_sent(purger)) == 8)
    assert [len(request) for request in purger.sent] == [3, 3, 2]


async def test_a_wake_up_ends_the_wait(writes: Writes) -> None:
    purger = ScriptedPurger("one")
    async with purging(writes, purger, limits=replace(QUICK, look_every_s=1_000.0)) as worker:
        await asyncio.sleep(0)
        await writes.write("articles/a#main")
        worker.wake()
        await until(lambda: len(purger.sent) == 1)


async def test_a_queue_that_does_not_answer_is_reported_and_retried() -> None:
    class Failing:
        calls = 0

        async def take_purges(self, partitions: Sequence[Partition], limit: int) -> list[Purge]:
            self.calls += 1
            if self.calls == 2:
                return [Purge(PARTITION, "articles/a#main", 1)]
            raise SketchUnavailable

        async def acknowledge_purges(self, purges: Sequence[Purge]) -> None:
            raise SketchUnavailable

    events: list[PurgeEvent] = []
    queue, purger = Failing(), ScriptedPurger("one")
    worker = Purging(queue, [purger], lambda: [PARTITION], events.append, QUICK)
    task = asyncio.create_task(worker.run())
    await until(lambda: queue.calls >= 4 and len(purger.sent) == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert PurgeQueueUnanswered() in events
    assert any(isinstance(event, PurgesWaiting) and event.keys == 1 for event in events)


@pytest.mark.parametrize(("chance", "share"), [(0.0, 0.5), (1.0, 1.0)])
async def test_pauses_double_up_to_the_maximum_and_are_spread(
    writes: Writes, chance: float, share: float
) -> None:
    purger, time = ScriptedPurger("one", broken=True), PassingTime(chance)
    limits = PurgingLimits(attempts=6, first_wait_s=1.0, max_wait_s=8.0, look_every_s=0.01)
    worker = Purging(
        writes.sketch, [purger], lambda: [PARTITION], lambda event: None, limits, time.timing
    )
    await writes.write("articles/a#main")
    task = asyncio.create_task(worker.run())
    await until(lambda: purger.attempts == 6)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.pauses == pytest.approx([share * pause for pause in (1, 2, 4, 8, 8)])


async def test_purging_needs_a_purger(writes: Writes) -> None:
    with pytest.raises(ValueError, match="needs a purger"):
        Purging(writes.sketch, [], lambda: [PARTITION], lambda event: None)


async def test_purging_now_is_confirmed_by_all_and_leaves_the_queue_responsible(
    writes: Writes,
) -> None:
    one, other = ScriptedPurger("one", max_keys=1), ScriptedPurger("other")
    worker = Purging(writes.sketch, [one, other], lambda: [PARTITION], lambda event: None)
    await writes.write("articles/a#main", "articles/b#main")
    assert await worker.purge_now("news", ["articles/a#main", "articles/b#main"], 10.0)
    assert one.sent == [("articles/a#main",), ("articles/b#main",)]
    assert other.sent == [("articles/a#main", "articles/b#main")]
    assert await writes.take_all() == {"articles/a#main", "articles/b#main"}


async def test_purging_now_ends_at_its_deadline_and_skips_recently_failed_purgers(
    writes: Writes,
) -> None:
    limits = PurgingLimits(first_wait_s=1_000.0, max_wait_s=1_000.0)
    slow, bad = ScriptedPurger("slow", hanging=True), ScriptedPurger("bad", broken=True)
    worker = Purging(writes.sketch, [slow, bad], lambda: [PARTITION], lambda event: None, limits)
    assert not await worker.purge_now("news", ["articles/a#main"], 0.05)
    slow.hanging = False
    assert not await worker.purge_now("news", ["articles/a#main"], 10.0)
    assert (slow.sent, bad.attempts) == ([("articles/a#main",)], 1)
    await worker.close()
    assert slow.closed


async def test_an_unreachable_cache_does_not_prevent_purging_another(
    writes: Writes, origin: Origin, path: str, varnish_cache: Varnish, http: httpx.AsyncClient
) -> None:
    url, key = varnish_cache.url + path, f"articles/{path.rpartition('/')[2]}#main"
    events: list[PurgeEvent] = []
    live = TagPurger(varnish_api("live", varnish_cache.url, varnish_cache.token))
    unreachable = TagPurger(varnish_api("unreachable", "http://127.0.0.1:9", varnish_cache.token))
    await http.get(url)
    origin.write(path)
    await writes.write(key)
    async with purging(writes, live, unreachable, on_event=events.append):
        await until(lambda: any(isinstance(event, PurgesSent) for event in events))
        assert (await http.get(url)).text == "version 2"
        await until(lambda: PurgesFailed("unreachable", 1, "unreachable", None) in events)
    assert key in await writes.take_all()


@pytest.fixture(params=["varnish", "nginx"])
def cache(
    request: pytest.FixtureRequest, varnish_cache: Varnish, nginx_cache: Nginx
) -> tuple[str, Purger]:
    """The address of a real cache, and its purger."""
    if request.param == "nginx":
        return nginx_cache.url, UrlPurger("nginx", nginx_cache.url, nginx_cache.token)
    api = varnish_api("varnish", varnish_cache.url, varnish_cache.token)
    return varnish_cache.url, TagPurger(api)


async def test_a_fill_in_flight_stores_the_old_version_until_the_second_purge(
    writes: Writes,
    origin: Origin,
    path: str,
    cache: tuple[str, Purger],
    http: httpx.AsyncClient,
) -> None:
    url, purger = cache[0] + path, cache[1]
    key = f"articles/{path.rpartition('/')[2]}#main"
    sent: list[PurgesSent] = []

    def on_event(event: PurgeEvent) -> None:
        if isinstance(event, PurgesSent):
            sent.append(event)

    barrier = origin.hold()
    fill = asyncio.create_task(http.get(url))
    await barrier.reached.wait()
    origin.write(path)
    await writes.write(key)
    async with purging(writes, purger, on_event=on_event):
        await until(lambda: len(sent) == 1)
        barrier.opened.set()
        assert (await fill).text == "version 1"
        assert (await http.get(url)).text == "version 1"
        forced = await http.get(url, headers={"Cache-Control": "no-cache", "If-None-Match": '"x"'})
        assert forced.text == "version 2"
        writes.advance(2 * F_S)
        await until(lambda: len(sent) == 2)
        assert (await http.get(url)).text == "version 2"


async def test_a_lost_purge_costs_revalidations_and_no_staleness(
    writes: Writes,
    origin: Origin,
    path: str,
    cache: tuple[str, Purger],
    http: httpx.AsyncClient,
) -> None:
    """The cache is never purged: the filter holds the key, so clients revalidate at the origin."""
    url = cache[0] + path
    key = f"articles/{path.rpartition('/')[2]}#main"
    await cache[1].close()
    await http.get(url)
    origin.write(path)
    await writes.write(key)
    assert (await http.get(url)).text == "version 1"
    snapshot = await writes.sketch.snapshot([PARTITION])
    assert any(snapshot.bits)
    for _ in range(2):
        assert (await http.get(url, headers={"Cache-Control": "no-cache"})).text == "version 2"
