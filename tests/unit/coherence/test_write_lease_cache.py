"""Cached write leases: when they take writes, when they are released, how many there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from app.coherence import cached_leases
from app.coherence.cached_leases import CachedLeases
from mediator.base.clock import SystemClock
from mediator.model.guard import WriteToken
from sketch.protocol.port import EndResult, OnContention, Partition, SketchLimits, SketchUnavailable

PARTITION = Partition("news", "articles")
ROUTE = object()


class Hand(SystemClock):
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s


class Ends:
    """A sketch that notes which writes were ended."""

    limits = SketchLimits(lease_s=30.0)

    def __init__(self) -> None:
        self.ended: list[str] = []
        self.answer: EndResult | SketchUnavailable = EndResult.DONE
        self.heard = (PARTITION, "")

    async def listen(self, tell: OnContention) -> None:
        await tell(*self.heard)

    async def end(self, partition: Partition, token: str, versions: Mapping[str, int]) -> EndResult:
        assert (partition, versions) == (PARTITION, {}), "it tells no version"
        if isinstance(self.answer, SketchUnavailable):
            raise self.answer
        self.ended.append(token)
        return self.answer


class World:
    def __init__(self) -> None:
        self.clock, self.sketch = Hand(), Ends()
        self.leases = CachedLeases(cast("Any", self.sketch), self.clock)
        self.leases.start()

    async def written(self, key: str, token: str = "t") -> None:
        """Write, as the first one, under a lease that is to linger."""
        self.leases.cache(PARTITION, key, WriteToken(token), ROUTE, self.clock.now_s)
        assert await self.leases.finish(WriteToken(token))

    async def after(self, seconds: float) -> list[str]:
        """Let time pass, and a round of the duty come; return which leases it ended."""
        self.clock.now_s += seconds
        before = len(self.sketch.ended)
        await self.leases.release_due()
        return self.sketch.ended[before:]

    async def refused(self, partition: Partition, key: str) -> None:
        """Hear of a read through another replica."""
        self.sketch.heard = partition, key
        await self.leases.listen()

    def joins(self, key: str = "k") -> bool:
        return self.leases.acquire(PARTITION, key, ROUTE) is not None


@pytest.fixture
def world() -> World:
    return World()


async def test_further_writes_use_the_token_of_the_first(world: World) -> None:
    await world.written("k")
    assert world.leases.acquire(PARTITION, "k", ROUTE) == WriteToken("t")
    assert not world.joins("another")
    assert world.leases.acquire(Partition("news", "authors"), "k", ROUTE) is None
    assert await world.leases.finish(WriteToken("t"))
    assert not await world.leases.finish(WriteToken("of another write"))
    assert world.sketch.ended == []


async def test_a_mark_is_ended_a_moment_after_its_last_write(world: World) -> None:
    await world.written("k")
    assert await world.after(1.9) == []
    assert world.joins()
    await world.leases.finish(WriteToken("t"))
    assert await world.after(1.9) == []
    assert await world.after(0.2) == ["t"]
    assert not world.joins()


async def test_the_more_marks_there_are_the_sooner_idle_ones_are_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that there is room for others, where most is written once."""
    monkeypatch.setattr(cached_leases, "MOST_LEASES", 8)
    for number in range(4):
        await world.written(f"k{number}", str(number))
    assert await world.after(1.5) == []
    for number in range(4, 8):
        await world.written(f"k{number}", str(number))
    assert len(await world.after(0.0)) == 8


async def test_a_mark_that_is_used_all_the_time_is_ended_when_it_is_old(world: World) -> None:
    await world.written("k")
    for _ in range(4):
        assert world.joins()
        assert await world.after(1.1) == []
        await world.leases.finish(WriteToken("t"))
    assert world.joins()
    assert await world.after(0.5) == [], "a write is under way"
    assert not world.joins()
    await world.leases.finish(WriteToken("t"))
    assert world.sketch.ended == ["t"]


async def test_a_mark_takes_no_write_long_before_its_lease_ends(world: World) -> None:
    """Though nothing has ended it: the duty may be late."""
    await world.written("k")
    world.clock.now_s += 5.9
    assert world.joins()
    world.clock.now_s += 0.2
    assert not world.joins()


@pytest.mark.parametrize(("lease_s", "good_s"), [(30.0, 6.0), (3.0, 0.6), (600.0, 6.0)])
async def test_writes_are_taken_for_a_small_part_of_the_lease(
    lease_s: float, good_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ends, "limits", SketchLimits(lease_s=lease_s))
    world = World()
    await world.written("k")
    world.clock.now_s += good_s - 0.01
    assert world.joins()
    world.clock.now_s += 0.02
    assert not world.joins()


async def test_the_time_of_a_mark_counts_from_before_the_sketch_was_asked(world: World) -> None:
    world.leases.cache(PARTITION, "k", WriteToken("t"), ROUTE, world.clock.now_s - 6.0)
    assert not await world.leases.finish(WriteToken("t")), "its beginning took too long"
    world.leases.cache(PARTITION, "k", WriteToken("u"), ROUTE, world.clock.now_s - 5.5)
    world.clock.now_s += 0.6
    assert not world.joins()


async def test_under_another_layout_a_mark_takes_no_write(world: World) -> None:
    await world.written("k")
    assert world.leases.acquire(PARTITION, "k", object()) is None
    assert not world.joins()
    assert await world.after(0.0) == ["t"]


async def test_what_came_to_nothing_is_left_to_recovery(world: World) -> None:
    await world.written("k")
    assert world.joins()
    assert await world.after(29.9) == []
    assert await world.after(0.2) == []
    assert not await world.leases.finish(WriteToken("t")), "it is forgotten"
    assert world.sketch.ended == []


async def test_a_reader_ends_the_mark_of_its_key_and_no_other_lingers_for_a_while(
    world: World,
) -> None:
    await world.written("k")
    await world.written("other", "o")
    await world.leases.release(PARTITION, ["some", "k"])
    assert world.sketch.ended == ["t"]
    world.leases.cache(PARTITION, "k", WriteToken("u"), ROUTE, world.clock.now_s)
    assert not await world.leases.finish(WriteToken("u"))
    assert world.joins("other")
    world.clock.now_s += 10.1
    await world.written("k", "v")


async def test_a_mark_in_use_ends_with_its_last_write(world: World) -> None:
    await world.written("k")
    assert world.joins()
    assert world.joins()
    await world.leases.release(PARTITION, ["k"])
    assert not world.joins()
    await world.leases.finish(WriteToken("t"))
    assert world.sketch.ended == []
    await world.leases.finish(WriteToken("t"))
    assert world.sketch.ended == ["t"]


async def test_who_asks_for_a_result_ends_all_marks_of_the_class(world: World) -> None:
    for number in range(3):
        await world.written(f"k{number}", str(number))
    await world.leases.release_class(Partition("news", "authors"))
    assert world.sketch.ended == []
    await world.leases.release_class(PARTITION)
    assert world.sketch.ended == ["0", "1", "2"]


async def test_a_key_that_another_replica_wanted_to_read_is_avoided(world: World) -> None:
    world.sketch.answer = EndResult.CONTENDED
    await world.written("k")
    assert await world.after(2.1) == ["t"]
    world.leases.cache(PARTITION, "k", WriteToken("u"), ROUTE, world.clock.now_s)
    assert not world.joins()


async def test_what_the_sketch_has_refused_to_a_reader_gives_way_at_once(world: World) -> None:
    await world.written("k")
    await world.written("other", "o")
    await world.refused(PARTITION, "k")
    assert world.sketch.ended == ["t"]
    assert not world.joins()
    assert world.joins("other")


async def test_a_mark_that_is_not_known_yet_gives_way_too(world: World) -> None:
    """Its reader may be heard of before its own beginning."""
    await world.refused(PARTITION, "k")
    world.leases.cache(PARTITION, "k", WriteToken("t"), ROUTE, world.clock.now_s)
    assert not await world.leases.finish(WriteToken("t"))


async def test_where_a_result_was_refused_all_marks_of_the_class_give_way(world: World) -> None:
    await world.written("k")
    await world.refused(Partition("news", "authors"), "")
    assert world.joins()
    await world.leases.finish(WriteToken("t"))
    await world.refused(PARTITION, "")
    assert world.sketch.ended == ["t"]
    await world.written("k", "u")


async def test_what_the_sketch_did_not_end_is_tried_again(world: World) -> None:
    await world.written("k")
    world.sketch.answer = SketchUnavailable()
    assert await world.after(2.1) == []
    assert not world.joins()
    world.sketch.answer = EndResult.DONE
    assert await world.after(0.1) == ["t"]
    assert await world.after(0.1) == []


async def test_a_replica_that_stops_leaves_no_marks(world: World) -> None:
    for number in range(250):
        await world.written(f"k{number}", str(number))
    assert world.joins("k7")
    await world.leases.stop()
    assert len(world.sketch.ended) == 249
    world.leases.cache(PARTITION, "late", WriteToken("late"), ROUTE, world.clock.now_s)
    assert not await world.leases.finish(WriteToken("late"))
    await world.leases.finish(WriteToken("7"))
    assert len(set(world.sketch.ended)) == 250


async def test_no_mark_lingers_before_the_start() -> None:
    world = World()
    leases = CachedLeases(cast("Any", world.sketch), world.clock)
    leases.cache(PARTITION, "k", WriteToken("t"), ROUTE, world.clock.now_s)
    assert not await leases.finish(WriteToken("t"))


async def test_so_many_marks_linger_and_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached_leases, "MOST_LEASES", 3)
    monkeypatch.setattr(cached_leases, "MOST_AVOIDED", 2)
    for number in range(3):
        await world.written(f"k{number}", str(number))
    world.leases.cache(PARTITION, "k3", WriteToken("3"), ROUTE, world.clock.now_s)
    assert not await world.leases.finish(WriteToken("3"))
    await world.leases.release(PARTITION, ["k0", "k1", "k2"])
    await world.written("k0", "one that was avoided first is forgotten first")
    world.leases.cache(PARTITION, "k2", WriteToken("2"), ROUTE, world.clock.now_s)
    assert not world.joins("k2")
