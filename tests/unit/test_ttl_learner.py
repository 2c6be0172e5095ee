"""The learner: what it grants, and what it makes of its regret."""

from __future__ import annotations

from random import Random

import pytest

from sketch.port import Part
from sketch.ttl import Constraints, Learner, LearnerSettings, Memory, Terms, Weights
from sketch.ttl.dials import Dial, Dials
from sketch.ttl.history import Proposal
from sketch.ttl.optimum import about_best, best_writes_per_life, relative_cost

PART = Part("paper", "articles")
KEY = ("articles/1#all",)


def drive(
    learner: Learner, reads: float, writes: float, seconds: float, random: Random
) -> list[float]:
    """One key that is read and written at random; what caches answer is not seen.

    Returns:
        The lives of copies that were granted while the filter did not hold the key.
    """
    now, alive, held, written, lives = 0.0, 0.0, 0.0, False, []
    while now < seconds:
        now += random.expovariate(reads + writes)
        if random.random() < writes / (reads + writes):
            learner.wrote(PART, KEY, now)
            held, written = max(held, alive), True
        elif now >= alive or written:
            life = learner.ttl_s(PART, KEY, now)
            learner.missed(PART, KEY, now, life)
            if now >= held:
                lives.append(life)
                written = False
            alive = max(alive, now + life)
    return lives


def test_reads_and_writes_decide() -> None:
    """For many reads for each write the best life is close to the root of 2 / (reads · writes)."""
    lives = drive(Learner(memory=Memory(transit_s=0)), 10, 0.01, 20_000, Random(1))
    late = sorted(lives[len(lives) // 2 :])
    assert late[len(late) // 2] == pytest.approx((2 / (10 * 0.01)) ** 0.5, rel=0.3)


def test_what_is_mostly_written_is_not_kept() -> None:
    lives = drive(Learner(), 0.1, 5, 2_000, Random(1))
    assert set(lives[20:]) == {0.0}
    dear = Learner(LearnerSettings(weights=Weights(invalidation=5)))
    assert set(drive(dear, 1, 1, 2_000, Random(1))[50:]) == {0.0}
    assert max(drive(Learner(), 1, 1, 2_000, Random(1))[50:]) > 0


def test_no_life_goes_beyond_the_longest() -> None:
    lives = drive(Learner(LearnerSettings(longest_s=20)), 1, 1e-6, 50_000, Random(1))
    assert max(lives) == 20


def test_a_class_begins_carefully() -> None:
    """That nothing was written yet says little at first, and more later."""
    learner = Learner()
    learner.missed(PART, KEY, 0, 0)
    lives = []
    for at in (1.0, 10.0, 100.0, 1_000.0):
        lives.append(learner.ttl_s(PART, KEY, at))
        learner.missed(PART, KEY, at, 0)
    assert lives == sorted(lives)
    assert lives[0] < 20 < lives[-1]


def test_copies_that_no_client_would_use_are_not_kept_beyond_the_filter() -> None:
    """They would keep the key in the filter after the next write."""
    learner = Learner()
    for at in range(100):
        learner.ttl_s(PART, KEY, at)
        learner.missed(PART, KEY, at, 0)
        learner.wrote(PART, KEY, at + 0.5)
    learner.missed(PART, KEY, 100, 50.0)
    learner.wrote(PART, KEY, 101)
    assert learner.ttl_s(PART, KEY, 110) == pytest.approx(40)


def test_constraints_shorten_lives() -> None:
    settings = LearnerSettings(constraints=Constraints(false_positives=0.01))
    learner = Learner(settings)
    drive(learner, 10, 0.01, 5_000, Random(1))
    free = learner.ttl_s(PART, KEY, 5_000)
    learner.filled(PART, 0.04)
    assert learner.ttl_s(PART, KEY, 5_000) == pytest.approx(free / 4)


@pytest.mark.parametrize(("share", "turned"), [(0.1, 1), (0.6, -1)])
def test_the_slope_follows_what_became_of_copies(share: float, turned: int) -> None:
    """The target is a third: fewer invalidated copies mean longer lives, more mean shorter ones."""
    dials, random = Dials(600, 0.01), Random(1)
    for _ in range(200):
        dials.settle(Proposal(10, 1 / 3, 1 / 3), invalidated=random.random() < share)
    assert (dials.slope.value - 1) * turned > 0.2
    assert dials.longest_s.value == 600


def test_the_longest_life_follows_what_it_decided() -> None:
    dials = Dials(600, 0.05)
    for _ in range(20):
        dials.settle(Proposal(600, 0.2, 0.2, capped=True), invalidated=True)
    assert dials.longest_s.value < 300
    for _ in range(1_000):
        dials.settle(Proposal(600, 0.2, 0.2, capped=True), invalidated=False)
    assert dials.longest_s.value == 600
    assert dials.slope.value == 1


def test_what_classes_ask_for_is_kept_and_what_is_no_more_is_forgotten() -> None:
    learner = Learner()
    terms = Terms(5.0, Weights())
    learner.agree({PART: terms})
    assert max(drive(learner, 1, 1e-6, 1_000, Random(1))) == 5
    kept = learner.dials[PART]
    learner.agree({PART: terms})
    assert learner.dials[PART] is kept
    learner.agree({PART: terms._replace(longest_s=50.0)})
    assert max(drive(learner, 1, 1e-6, 5_000, Random(1))) > 5
    learner.agree({})
    assert not learner.dials
    assert not learner.regrets


def test_the_error_tells_how_well_lives_are_foreseen() -> None:
    """Writes that are independent of reads are foreseen; those that follow every read are not."""
    learner = Learner(memory=Memory(transit_s=0))
    drive(learner, 10, 0.1, 20_000, Random(1))
    regret = learner.regrets[PART]
    assert regret.judged > 1_000
    assert abs(regret.error) < 0.1
    surprised, now = Learner(memory=Memory(transit_s=0)), 0.0
    for _ in range(500):
        now += 10
        surprised.missed(PART, KEY, now, surprised.ttl_s(PART, KEY, now))
        surprised.wrote(PART, KEY, now + 0.1)
    assert surprised.regrets[PART].error > 0.3


def test_a_dial_has_ends() -> None:
    dial = Dial(1, 0.5, 4)
    dial.turn(100)
    assert dial.value == 4
    dial.turn(-100)
    assert dial.value == 0.5


def test_writes_that_come_soon_after_reads_turn_the_slope_down() -> None:
    """The model takes writes for independent of reads; regret tells that they are not."""
    learner, random, now = Learner(memory=Memory(transit_s=0)), Random(1), 0.0
    for _ in range(2_000):
        now += random.expovariate(0.1)
        life = learner.ttl_s(PART, KEY, now)
        learner.missed(PART, KEY, now, life)
        if random.random() < 0.5:
            learner.wrote(PART, KEY, now + 0.3)
    assert learner.dials[PART].slope.value < 0.7
    assert learner.regrets[PART].invalidations > learner.regrets[PART].stale_avoided


def test_the_same_happens_again() -> None:
    lives = [drive(Learner(seed=4), 5, 0.2, 500, Random(7)) for _ in range(2)]
    assert lives[0] == lives[1]


def test_a_life_that_was_granted_shorter_is_no_evidence() -> None:
    learner, now = Learner(LearnerSettings(step=0.5)), 0.0
    for _ in range(100):
        now += 1
        learner.ttl_s(PART, KEY, now)
        learner.missed(PART, KEY, now, 1e-3)
        learner.wrote(PART, KEY, now + 0.5)
    assert learner.dials[PART].slope.value == 1


def test_the_optimum_of_equal_rates() -> None:
    """Ten reads for each write: e^u (1 + a/r²) = 1 + 1/r + u, found by hand for a = 0."""
    assert best_writes_per_life(10, 0) == pytest.approx(0.4162, abs=1e-3)
    assert best_writes_per_life(1, 1) == 0
    assert relative_cost(0, 10, 1) == 1
    for ratio in (1e-9, 0.3, 1.7, 42.0, 1e5, 1e9):
        assert about_best(ratio, 0.2) == pytest.approx(best_writes_per_life(ratio, 0.2), rel=0.05)
