"""No answer seems younger than it is, however the sketch's clock is set."""

from __future__ import annotations

import math
from random import Random

from sketch.client.clock import SketchClock

MAX_CACHED_S = 1.0
LATE_S = 2.0
START_US = 1_800_000_000_000_000


class World:
    """A clock that is set now and then; the client's clock is the true one."""

    def __init__(self, sets: list[tuple[float, float]]) -> None:
        self._sets = sets

    def shows_us(self, at: float) -> int:
        set_s = sum(by for when, by in self._sets if when <= at)
        return START_US + math.floor((at + set_s) * 1_000_000)


def test_no_response_is_reported_younger_than_it_is() -> None:
    """It was dated by an earlier reading of the clock, and was in a cache for a while."""
    rng, dated = Random(1), 0
    for _ in range(300):
        world = World([(rng.uniform(0, 15), rng.uniform(-5, 0))])
        clock, now = SketchClock(MAX_CACHED_S), 0.0
        while now < 15:
            created = now + rng.choice([0.4, 0.9, 4.0 * rng.random()])
            now = created + rng.random() ** 3
            clock.note(created, world.shows_us(rng.uniform(created, now)))
            for _ in range(20):
                at = now + rng.random()
                true_at = at - MAX_CACHED_S * rng.random()
                read_at = true_at - LATE_S * rng.random()
                date_us = world.shows_us(read_at) + math.floor((true_at - read_at) * 1_000_000)
                since = clock.not_before(date_us, at)
                assert since <= true_at + 2e-6
                dated += since > -math.inf
    assert dated > 10_000


def test_a_clock_that_is_not_set_is_known_after_a_while() -> None:
    world, clock = World([]), SketchClock(MAX_CACHED_S)
    for second in range(3):
        clock.note(second, world.shows_us(second + 0.01))
        assert not clock.is_known(second)
        assert clock.not_before(world.shows_us(second), second + 0.5) == -math.inf
    assert clock.is_known(3.0)
    assert 2.9 < clock.not_before(world.shows_us(3.0), 3.1) <= 3.0


def test_after_a_gap_the_clock_is_observed_again() -> None:
    world, clock = World([]), SketchClock(MAX_CACHED_S)
    for second in range(5):
        clock.note(second, world.shows_us(second))
    assert clock.is_known(7.0)
    assert not clock.is_known(7.1)
    clock.note(7.1, world.shows_us(7.1))
    assert not clock.is_known(7.1)


def test_a_new_clock_is_unknown_until_it_is_observed() -> None:
    world, clock = World([]), SketchClock(MAX_CACHED_S)
    for second in range(5):
        clock.note(second, world.shows_us(second))
    clock.reset()
    assert clock.latest_us(5.0) == math.inf
    clock.note(5.0, 0)
    assert not clock.is_known(5.0)


def test_a_time_that_cannot_have_been_shown_yet_proves_nothing() -> None:
    world, clock = World([]), SketchClock(MAX_CACHED_S)
    for second in range(5):
        clock.note(second, world.shows_us(second))
    assert clock.not_before(world.shows_us(5.0), 4.5) == -math.inf
