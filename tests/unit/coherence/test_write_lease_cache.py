"""Cached write leases: when they take writes, when they are released, how many there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.coherence import cached_leases
from app.coherence.cached_leases import CachedLeases
from app.coherence.write_guard import SketchGuard
from mediator.model.guard import CacheKey, WriteToken
from sketch.protocol.port import (
    BeginResult,
    EndResult,
    OnContention,
    Partition,
    SketchLimits,
    SketchUnavailable,
)
from tests.conformance.virtual_time import HandClock

PARTITION = Partition("news", "articles")
ROUTE = object()


class RecordingSketch:
    """A sketch that records which writes were ended."""

    limits = SketchLimits(lease_s=30.0)

    def __init__(self) -> None:
        self.ended: list[str] = []
        self.answer: EndResult | SketchUnavailable = EndResult.DONE
        self.contention = (PARTITION, "")

    async def listen(self, on_contention: OnContention) -> None:
        await on_contention(*self.contention)

    async def end(self, partition: Partition, token: str, versions: Mapping[str, int]) -> EndResult:
        assert (partition, versions) == (PARTITION, {}), "no version is sent"
        if isinstance(self.answer, SketchUnavailable):
            raise self.answer
        self.ended.append(token)
        return self.answer


class World:
    def __init__(self) -> None:
        self.clock, self.sketch = HandClock(), RecordingSketch()
        self.leases = CachedLeases(cast("Any", self.sketch), self.clock)
        self.leases.start()

    async def write_first(self, key: str, token: str = "t") -> None:
        """Write for the first time, and cache the lease."""
        self.leases.cache(PARTITION, key, WriteToken(token), ROUTE, self.clock.elapsed_s)
        assert await self.leases.finish(WriteToken(token))

    async def advance(self, seconds: float) -> list[str]:
        """Advance the time, run the periodic task and return the leases that it ended."""
        self.clock.elapsed_s += seconds
        before = len(self.sketch.ended)
        await self.leases.release_due()
        return self.sketch.ended[before:]

    async def receive_contention(self, partition: Partition, key: str) -> None:
        """Receive the notification of a read through another replica."""
        self.sketch.contention = partition, key
        await self.leases.listen()

    def is_reused(self, key: str = "k") -> bool:
        return self.leases.acquire(PARTITION, key, ROUTE) is not None


@pytest.fixture
def world() -> World:
    return World()


async def test_further_writes_use_the_token_of_the_first(world: World) -> None:
    await world.write_first("k")
    assert world.leases.acquire(PARTITION, "k", ROUTE) == WriteToken("t")
    assert not world.is_reused("another")
    assert world.leases.acquire(Partition("news", "authors"), "k", ROUTE) is None
    assert await world.leases.finish(WriteToken("t"))
    assert not await world.leases.finish(WriteToken("of another write"))
    assert world.sketch.ended == []


async def test_a_lease_is_released_a_moment_after_its_last_write(world: World) -> None:
    await world.write_first("k")
    assert await world.advance(1.9) == []
    assert world.is_reused()
    await world.leases.finish(WriteToken("t"))
    assert await world.advance(1.9) == []
    assert await world.advance(0.2) == ["t"]
    assert not world.is_reused()


async def test_the_more_leases_there_are_the_sooner_idle_ones_are_released(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It makes room for other leases where most keys are written once."""
    monkeypatch.setattr(cached_leases, "MAX_LEASES", 8)
    for number in range(4):
        await world.write_first(f"k{number}", str(number))
    assert await world.advance(1.5) == []
    for number in range(4, 8):
        await world.write_first(f"k{number}", str(number))
    assert len(await world.advance(0.0)) == 8


async def test_a_lease_that_is_used_all_the_time_is_released_when_it_is_old(world: World) -> None:
    await world.write_first("k")
    for _ in range(4):
        assert world.is_reused()
        assert await world.advance(1.1) == []
        await world.leases.finish(WriteToken("t"))
    assert world.is_reused()
    assert await world.advance(0.5) == [], "a write is under way"
    assert not world.is_reused()
    await world.leases.finish(WriteToken("t"))
    assert world.sketch.ended == ["t"]


async def test_a_cached_lease_takes_no_write_long_before_it_ends(world: World) -> None:
    """It does so even before its release, because the periodic task can be late."""
    await world.write_first("k")
    world.clock.elapsed_s += 5.9
    assert world.is_reused()
    world.clock.elapsed_s += 0.2
    assert not world.is_reused()


@pytest.mark.parametrize(("lease_s", "usable_s"), [(30.0, 6.0), (3.0, 0.6), (600.0, 6.0)])
async def test_a_lease_is_reused_for_a_small_share_of_its_time(
    lease_s: float, usable_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RecordingSketch, "limits", SketchLimits(lease_s=lease_s))
    world = World()
    await world.write_first("k")
    world.clock.elapsed_s += usable_s - 0.01
    assert world.is_reused()
    world.clock.elapsed_s += 0.02
    assert not world.is_reused()


async def test_the_age_of_a_lease_counts_from_before_the_sketch_was_called(world: World) -> None:
    world.leases.cache(PARTITION, "k", WriteToken("t"), ROUTE, world.clock.elapsed_s - 6.0)
    assert not await world.leases.finish(WriteToken("t")), "it took too long to start"
    world.leases.cache(PARTITION, "k", WriteToken("u"), ROUTE, world.clock.elapsed_s - 5.5)
    world.clock.elapsed_s += 0.6
    assert not world.is_reused()


async def test_the_age_of_a_lease_counts_from_before_the_call_of_the_sketch(world: World) -> None:
    async def begin(partition: Partition, keys: Sequence[str], token: str) -> BeginResult:
        world.clock.elapsed_s += 5.5
        return BeginResult(lease_cacheable=True)

    async def adopt(partition: Partition) -> object:
        return ROUTE

    stubs: dict[str, Any] = {
        "sketch": SimpleNamespace(begin=begin),
        "layouts": SimpleNamespace(adopt=adopt, adopted=lambda _: ROUTE),
        "queries": SimpleNamespace(sequence=lambda _: 0),
    }
    unused: Any = None
    guard = SketchGuard(
        stubs["sketch"],
        unused,
        stubs["queries"],
        stubs["layouts"],
        world.leases,
        unused,
        world.clock,
    )
    key = CacheKey(PARTITION.class_name, "a", "main")
    token = await guard.begin(PARTITION.database, [key])
    assert await guard.begin(PARTITION.database, [key]) == token
    world.clock.elapsed_s += 0.6
    assert not world.is_reused(str(key)), "it is older in the sketch"


async def test_under_another_layout_a_lease_takes_no_write(world: World) -> None:
    await world.write_first("k")
    assert world.leases.acquire(PARTITION, "k", object()) is None
    assert not world.is_reused()
    assert await world.advance(0.0) == ["t"]


async def test_a_write_of_unknown_outcome_is_left_to_recovery(world: World) -> None:
    await world.write_first("k")
    assert world.is_reused()
    assert await world.advance(29.9) == []
    assert await world.advance(0.2) == []
    assert not await world.leases.finish(WriteToken("t")), "it is forgotten"
    assert world.sketch.ended == []


async def test_a_reader_releases_the_lease_of_its_key_and_none_is_cached_for_a_while(
    world: World,
) -> None:
    await world.write_first("k")
    await world.write_first("other", "o")
    await world.leases.release(PARTITION, ["some", "k"])
    assert world.sketch.ended == ["t"]
    world.leases.cache(PARTITION, "k", WriteToken("u"), ROUTE, world.clock.elapsed_s)
    assert not await world.leases.finish(WriteToken("u"))
    assert world.is_reused("other")
    world.clock.elapsed_s += 10.1
    await world.write_first("k", "v")


async def test_a_lease_in_use_is_released_with_its_last_write(world: World) -> None:
    await world.write_first("k")
    assert world.is_reused()
    assert world.is_reused()
    await world.leases.release(PARTITION, ["k"])
    assert not world.is_reused()
    await world.leases.finish(WriteToken("t"))
    assert world.sketch.ended == []
    await world.leases.finish(WriteToken("t"))
    assert world.sketch.ended == ["t"]


async def test_the_request_of_a_result_releases_all_leases_of_the_class(world: World) -> None:
    for number in range(3):
        await world.write_first(f"k{number}", str(number))
    await world.leases.release_class(Partition("news", "authors"))
    assert world.sketch.ended == []
    await world.leases.release_class(PARTITION)
    assert world.sketch.ended == ["0", "1", "2"]


async def test_a_contended_key_is_avoided(world: World) -> None:
    world.sketch.answer = EndResult.CONTENDED
    await world.write_first("k")
    assert await world.advance(2.1) == ["t"]
    world.leases.cache(PARTITION, "k", WriteToken("u"), ROUTE, world.clock.elapsed_s)
    assert not world.is_reused()


async def test_on_contention_the_lease_of_the_key_is_released(world: World) -> None:
    await world.write_first("k")
    await world.write_first("other", "o")
    await world.receive_contention(PARTITION, "k")
    assert world.sketch.ended == ["t"]
    assert not world.is_reused()
    assert world.is_reused("other")


async def test_on_contention_a_lease_that_is_not_known_yet_is_not_cached(world: World) -> None:
    """The notification may arrive before the write has started here."""
    await world.receive_contention(PARTITION, "k")
    world.leases.cache(PARTITION, "k", WriteToken("t"), ROUTE, world.clock.elapsed_s)
    assert not await world.leases.finish(WriteToken("t"))


async def test_on_contention_for_a_result_all_leases_of_the_class_are_released(
    world: World,
) -> None:
    await world.write_first("k")
    await world.receive_contention(Partition("news", "authors"), "")
    assert world.is_reused()
    await world.leases.finish(WriteToken("t"))
    await world.receive_contention(PARTITION, "")
    assert world.sketch.ended == ["t"]
    await world.write_first("k", "u")


async def test_a_release_that_failed_is_retried(world: World) -> None:
    await world.write_first("k")
    world.sketch.answer = SketchUnavailable()
    assert await world.advance(2.1) == []
    assert not world.is_reused()
    world.sketch.answer = EndResult.DONE
    assert await world.advance(0.1) == ["t"]
    assert await world.advance(0.1) == []


async def test_a_replica_that_stops_leaves_no_leases(world: World) -> None:
    for number in range(250):
        await world.write_first(f"k{number}", str(number))
    assert world.is_reused("k7")
    await world.leases.stop()
    assert len(world.sketch.ended) == 249
    world.leases.cache(PARTITION, "late", WriteToken("late"), ROUTE, world.clock.elapsed_s)
    assert not await world.leases.finish(WriteToken("late"))
    await world.leases.finish(WriteToken("7"))
    assert len(set(world.sketch.ended)) == 250


async def test_no_lease_is_cached_before_the_start() -> None:
    world = World()
    leases = CachedLeases(cast("Any", world.sketch), world.clock)
    leases.cache(PARTITION, "k", WriteToken("t"), ROUTE, world.clock.elapsed_s)
    assert not await leases.finish(WriteToken("t"))


async def test_the_number_of_cached_leases_is_bounded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached_leases, "MAX_LEASES", 3)
    monkeypatch.setattr(cached_leases, "MAX_AVOIDED", 2)
    for number in range(3):
        await world.write_first(f"k{number}", str(number))
    world.leases.cache(PARTITION, "k3", WriteToken("3"), ROUTE, world.clock.elapsed_s)
    assert not await world.leases.finish(WriteToken("3"))
    await world.leases.release(PARTITION, ["k0", "k1", "k2"])
    await world.write_first("k0", "the key avoided first is forgotten first")
    world.leases.cache(PARTITION, "k2", WriteToken("2"), ROUTE, world.clock.elapsed_s)
    assert not world.is_reused("k2")
