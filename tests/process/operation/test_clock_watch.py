"""Steps of the sketch's clock: the reads it has accounted for count until their real end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from app.coherence.clock_watch import ClockWatch
from mediator.base.clock import SystemClock
from mediator.base.errors import Unavailable
from sketch.filter.shape import FilterShape
from sketch.memory.server import MemorySketch
from sketch.protocol.bounds import lifetime_us
from sketch.protocol.port import FilterSnapshot, Partition, SketchLimits, SketchUnavailable
from tests.process.sketch.sketches import has

PARTITION = Partition("shop", "articles")
KEY = "articles/a#main"
LIMITS = SketchLimits()


class ManualClock(SystemClock):
    """A monotonic clock that is moved by hand."""

    at = 100.0

    def monotonic(self) -> float:
        return self.at


class World:
    """A sketch whose clock can be set, and a replica that watches it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.set_us = 1_800_000_000_000_000
        self.sketch = MemorySketch(LIMITS, FilterShape(8_192, 4, 7), self._server_us, fresh=False)
        self.watch = ClockWatch(self.sketch, self.renew, lambda: [PARTITION], self.clock)
        self.renewals = 0
        self.is_away = False

    def _server_us(self) -> int:
        return self.set_us + round(self.clock.at * 1_000_000)

    async def renew(self, database: str, class_name: str) -> None:
        if self.is_away:
            raise Unavailable("away", system="sketch")
        self.renewals += 1
        await self.sketch.invalidate(Partition(database, class_name))

    async def advance(self, seconds: float, *, checks: int = 10) -> None:
        """Advance the time, and check the clock at each step."""
        for _ in range(checks):
            self.clock.at += seconds / checks
            await self.watch.check()

    async def covers(self) -> bool:
        """Whether the filter makes a reader revalidate the key."""
        return has(await self.sketch.snapshot([PARTITION]), KEY)


@pytest.fixture
async def world() -> World:
    world = World()
    await world.sketch.create(PARTITION)
    await world.watch.check()
    # All copies of a partition that was not fresh are revalidated for this long.
    await world.advance(lifetime_us(LIMITS) / 1_000_000 + 1)
    assert not await world.covers()
    return world


async def test_a_copy_that_outlives_a_clock_that_is_set_is_revalidated(world: World) -> None:
    grant = await world.sketch.report_read(PARTITION, [KEY], 60.0)
    assert grant.ttl_us > 0
    world.set_us += 3600 * 1_000_000
    await world.advance(0.5, checks=1)
    await world.sketch.begin(PARTITION, [KEY], "token")
    await world.sketch.end(PARTITION, "token", {KEY: 1})
    await world.advance(50.0)
    assert await world.covers(), "the copy is fresh, and older than the write"
    assert world.renewals == 1


async def test_a_clock_that_gains_little_by_little_is_noticed(world: World) -> None:
    for _ in range(10):
        world.set_us += 100_000
        await world.advance(0.5, checks=1)
    assert world.renewals == 3, "each time it has gained more than a quarter of a second"


async def test_a_clock_that_gains_after_it_was_set_back_is_noticed(world: World) -> None:
    await world.advance(3600.0)
    world.set_us -= 60 * 1_000_000
    await world.advance(0.5, checks=1)
    world.set_us += 300_000
    await world.advance(0.5, checks=1)
    assert world.renewals == 1


async def test_a_clock_that_is_slewed_renews_no_partition(world: World) -> None:
    for _ in range(3600):
        world.set_us += 400
        await world.advance(1.0, checks=1)
    assert world.renewals == 0


async def test_a_slow_reply_is_not_taken_for_a_clock_step(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = world.sketch.snapshot

    async def slow(partitions: Sequence[Partition]) -> FilterSnapshot:
        world.clock.at += 1.0
        return await snapshot(partitions)

    with monkeypatch.context() as patched:
        patched.setattr(world.sketch, "snapshot", slow)
        await world.advance(2.0, checks=4)
    await world.advance(2.0, checks=4)
    assert world.renewals == 0


async def test_a_clock_set_back_renews_no_partition(world: World) -> None:
    await world.advance(3600.0)
    world.set_us -= 60 * 1_000_000
    await world.advance(3600.0)
    assert world.renewals == 0


async def test_a_partition_whose_renewal_failed_is_still_due(world: World) -> None:
    world.set_us += 60 * 1_000_000
    world.is_away = True
    for _ in range(2):
        with pytest.raises(Unavailable):
            await world.watch.check()
    world.is_away = False
    await world.advance(1.0)
    assert world.renewals == 1


async def test_a_sketch_that_does_not_answer_is_checked_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(partitions: object) -> FilterSnapshot:
        raise SketchUnavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr(world.sketch, "snapshot", fail)
        with pytest.raises(Unavailable):
            await world.watch.check()
    world.set_us += 60 * 1_000_000
    await world.advance(1.0)
    assert world.renewals == 1


async def test_the_earliest_time_advances_with_elapsed_time(world: World) -> None:
    earliest = world.watch.earliest_us()
    assert earliest is not None
    world.clock.at += 1.0
    later = world.watch.earliest_us()
    assert later is not None
    assert 0 < world.set_us + world.clock.at * 1_000_000 - later < 1_000
    assert later > earliest


async def test_the_earliest_time_is_unknown_without_a_recent_reading(
    world: World,
) -> None:
    assert (
        ClockWatch(world.sketch, world.renew, lambda: [PARTITION], world.clock).earliest_us()
        is None
    )
    world.clock.at += 2.1
    assert world.watch.earliest_us() is None
