"""The learner: the TTLs that it grants, and how its regret adjusts its parameters."""

from __future__ import annotations

from math import inf
from random import Random

import pytest

from sketch.protocol.port import Partition
from sketch.ttl import Constraints, Learner, LearnerSettings, Memory, Terms, Weights
from sketch.ttl.costs import After, Belief, SampleOutcome, about_best, best_writes_per_ttl, cost
from sketch.ttl.history import TtlProposal, TtlSample
from sketch.ttl.learner import LearnedParameters, Parameter
from tests.unit.sketch.expected_costs import relative_cost

PARTITION = Partition("paper", "articles")
KEY = ("articles/1#all",)


def drive(
    learner: Learner, reads: float, writes: float, seconds: float, random: Random
) -> list[float]:
    """Drive one key that is read and written at random; the answers of caches are not observed.

    Returns:
        The TTLs of copies that were granted while the filter did not hold the key.
    """
    now, fresh_until, stale_until, is_written, ttls = 0.0, 0.0, 0.0, False, []
    while now < seconds:
        now += random.expovariate(reads + writes)
        if random.random() < writes / (reads + writes):
            learner.wrote(PARTITION, KEY, now)
            stale_until, is_written = max(stale_until, fresh_until), True
        elif now >= fresh_until or is_written:
            ttl = learner.ttl_s(PARTITION, KEY, now)
            learner.missed(PARTITION, KEY, now, ttl)
            if now >= stale_until:
                ttls.append(ttl)
                is_written = False
            fresh_until = max(fresh_until, now + ttl)
    return ttls


def test_reads_and_writes_decide() -> None:
    """For many reads for each write the best TTL is close to the root of 2 / (reads · writes)."""
    ttls = drive(Learner(memory=Memory(transit_s=0)), 10, 0.01, 20_000, Random(1))
    second_half = sorted(ttls[len(ttls) // 2 :])
    assert second_half[len(second_half) // 2] == pytest.approx((2 / (10 * 0.01)) ** 0.5, rel=0.3)


def test_a_key_that_is_mostly_written_is_not_cached() -> None:
    ttls = drive(Learner(), 0.1, 5, 2_000, Random(1))
    assert set(ttls[20:]) == {0.0}
    costly = Learner(LearnerSettings(weights=Weights(invalidation=5)))
    assert set(drive(costly, 1, 1, 2_000, Random(1))[50:]) == {0.0}
    assert max(drive(Learner(), 1, 1, 2_000, Random(1))[50:]) > 0


def test_no_ttl_exceeds_the_maximum() -> None:
    ttls = drive(Learner(LearnerSettings(max_ttl_s=20)), 1, 1e-6, 50_000, Random(1))
    assert max(ttls) == 20


def test_a_class_starts_with_short_ttls() -> None:
    """The absence of writes proves little at first, and more later."""
    learner = Learner()
    learner.missed(PARTITION, KEY, 0, 0)
    ttls = []
    for at in (1.0, 10.0, 100.0, 1_000.0):
        ttls.append(learner.ttl_s(PARTITION, KEY, at))
        learner.missed(PARTITION, KEY, at, 0)
    assert ttls == sorted(ttls)
    assert ttls[0] < 20 < ttls[-1]


def test_copies_that_no_client_would_use_are_not_kept_beyond_the_filter() -> None:
    """They would keep the key in the filter after the next write."""
    learner = Learner()
    for at in range(100):
        learner.ttl_s(PARTITION, KEY, at)
        learner.missed(PARTITION, KEY, at, 0)
        learner.wrote(PARTITION, KEY, at + 0.5)
    learner.missed(PARTITION, KEY, 100, 50.0)
    learner.wrote(PARTITION, KEY, 101)
    assert learner.ttl_s(PARTITION, KEY, 110) == pytest.approx(40)


def test_copies_are_kept_beyond_the_filter_where_it_holds_their_key_for_a_moment() -> None:
    """There may be no read in between, and then the copy would be missed."""
    learner = Learner(memory=Memory(transit_s=0))
    for at in range(1_000):
        learner.ttl_s(PARTITION, KEY, at)
        learner.missed(PARTITION, KEY, at, 0)
        if at % 100 == 0:
            learner.wrote(PARTITION, KEY, at + 0.5)
    best_s = learner.ttl_s(PARTITION, KEY, 1_000)
    learner.missed(PARTITION, KEY, 1_000, best_s)
    learner.wrote(PARTITION, KEY, 1_001)
    end = 1_000 + best_s
    assert learner.ttl_s(PARTITION, KEY, end - 0.02 * best_s) > 0.5 * best_s
    assert learner.ttl_s(PARTITION, KEY, end - 0.5 * best_s) == pytest.approx(0.5 * best_s)


def test_a_key_that_is_hardly_ever_written_is_cached() -> None:
    """So seldom that the exponential function is 1 in floating point."""
    learner = Learner()
    learner.missed(PARTITION, KEY, 0, 0)
    learner.missed(PARTITION, KEY, 1e20, 0)
    assert learner.ttl_s(PARTITION, KEY, 1e20) == 600


def test_no_ttl_exceeds_the_maximum_because_of_the_filter() -> None:
    """The filter holds a key for longer if others granted more."""
    learner = Learner(LearnerSettings(max_ttl_s=20))
    learner.missed(PARTITION, KEY, 0, 500.0)
    learner.wrote(PARTITION, KEY, 1)
    assert learner.ttl_s(PARTITION, KEY, 2) == 20


def test_constraints_shorten_ttls() -> None:
    settings = LearnerSettings(constraints=Constraints(false_positives=0.01))
    learner = Learner(settings)
    drive(learner, 10, 0.01, 5_000, Random(1))
    free = learner.ttl_s(PARTITION, KEY, 5_000)
    learner.filled(PARTITION, 0.04)
    assert learner.ttl_s(PARTITION, KEY, 5_000) == pytest.approx(free / 4)


BELIEF = Belief(best_s=2.0, unused_s=0.0, reads=1.0, writes=0.5, invalidation=0.2, late=1.0)


def poisson(random: Random, belief: Belief, parameters: LearnedParameters) -> SampleOutcome:
    """Draw the outcome of a copy whose writes have the estimated rate."""
    ttl_s, until_s = parameters.slope.value * belief.best_s, random.expovariate(belief.writes)
    return SampleOutcome(ttl_s, min(until_s, ttl_s), until_s < ttl_s)


def test_the_cost_in_hindsight_is_that_of_the_copy() -> None:
    """A TTL of 4 s with a write after 3: a miss, an invalidation, and a read in the last second.

    The write after the first one is estimated. With a TTL of 2 s there would have
    been one miss, and 5/3 times as many copies.
    """
    outcome = SampleOutcome(ttl_s=4.0, seen_s=3.0, written=True)
    assert cost(4.0, BELIEF, outcome) == pytest.approx(1 + 0.2 * 1.5 + 1)
    assert cost(2.0, BELIEF, outcome) == pytest.approx(5 / 3)
    late = BELIEF._replace(unused_s=3.5)
    assert cost(4.0, late, outcome) == pytest.approx(1 + 3.5 + 0.2 * 1.5 + 0.5)
    assert cost(0.0, BELIEF, outcome) == pytest.approx(5), "five reads, five misses"
    never_used = BELIEF._replace(unused_s=5.0)
    assert cost(4.0, never_used, outcome) == pytest.approx(1 + 4 + 0.2 * 1.5)


def test_events_after_the_write_are_counted_as_far_as_they_were_observed() -> None:
    """A TTL of 4 s: a write after 2, then ten reads and three writes until the end."""
    outcome = SampleOutcome(4.0, 2.0, True, After(reads=10, writes=3))
    assert cost(4.0, BELIEF, outcome) == pytest.approx(1 + 0.2 * 4 + 10)
    assert cost(3.0, BELIEF, outcome) == pytest.approx((1 + 0.2 * 2.5 + 5) * 5 / 4), "half of it"
    believed_beyond = 0.2 * (4 + 0.5 * 2) + 10 + 2
    assert cost(6.0, BELIEF, outcome) == pytest.approx((1 + believed_beyond) * 5 / 7)
    assert cost(1.0, BELIEF, outcome) == pytest.approx(5 / 2), "it would have ended before"


def test_a_sample_is_observed_until_the_copy_expires() -> None:
    sample = TtlSample(TtlProposal(10.0), 100.0, 10.0)
    assert sample.missed(101) is None
    assert sample.wrote(103) is None
    for at in (104, 105):
        assert sample.missed(at) is None
        assert sample.wrote(at + 0.5) is None
    outcome = SampleOutcome(10.0, 3.0, True, After(reads=2, writes=2))
    assert sample.missed(110) == sample.wrote(111) == outcome
    assert outcome.invalidated


@pytest.mark.parametrize("written", [False, True])
def test_a_sample_without_a_write_ends_with_the_next_event(written: bool) -> None:
    sample = TtlSample(TtlProposal(10.0), 100.0, 10.0)
    outcome = sample.wrote(115) if written else sample.missed(115)
    assert outcome == SampleOutcome(10.0, 15.0, written)
    assert not SampleOutcome(10.0, 15.0, written).invalidated


@pytest.mark.parametrize(("seen_s", "written", "lost"), [(1, True, 1), (1, False, 0), (3, True, 0)])
def test_a_copy_is_invalidated_by_a_write_within_its_ttl(
    seen_s: float, written: bool, lost: bool
) -> None:
    assert SampleOutcome(2.0, seen_s, written).invalidated == lost


def test_unobserved_time_costs_what_the_model_expects() -> None:
    """Without observations the cost is that of the model."""
    ratio = BELIEF.reads / BELIEF.writes
    for ttl_s in (0.5, 2.0, 8.0):
        believed = relative_cost(ttl_s * BELIEF.writes, ratio, BELIEF.invalidation)
        assert cost(ttl_s, BELIEF, SampleOutcome(0.0, 0.0, written=False)) == pytest.approx(
            believed
        )
    for seen_s in (5.0, 2.0):
        costs = cost(2.0, BELIEF, SampleOutcome(2.0, seen_s, written=False))
        assert costs == 1, "nothing happened within its TTL"


def test_the_mean_cost_in_hindsight_is_that_of_the_model() -> None:
    """If writes are Poisson, the observations confirm the belief."""
    random, parameters, copies = Random(1), LearnedParameters(600, 0), 20_000
    outcomes = [poisson(random, BELIEF, parameters) for _ in range(copies)]
    for ttl_s in (1.0, 2.0, 4.0):
        mean = sum(cost(ttl_s, BELIEF, outcome) for outcome in outcomes) / copies
        model = relative_cost(ttl_s * BELIEF.writes, 2.0, BELIEF.invalidation)
        assert mean == pytest.approx(model * (1 + BELIEF.reads * 2.0), rel=0.02)


def test_the_slope_stays_where_the_model_is_right() -> None:
    best_s = best_writes_per_ttl(2.0, BELIEF.invalidation) / BELIEF.writes
    belief, parameters, random = (
        BELIEF._replace(best_s=best_s),
        LearnedParameters(600, 500),
        Random(1),
    )
    for _ in range(3_000):
        parameters.adjust(belief, poisson(random, belief, parameters))
    assert parameters.slope.value == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize(("after_s", "minimum", "maximum"), [(0.6, 0, 0.4), (9.0, 3, 4.1)])
def test_the_slope_moves_to_the_lowest_cost(after_s: float, minimum: float, maximum: float) -> None:
    """Copies of 2 s: their keys are always written after 0.6 s, or after 9 s."""
    parameters = LearnedParameters(600, 500)
    for _ in range(500):
        ttl_s = parameters.slope.value * BELIEF.best_s
        parameters.adjust(BELIEF, SampleOutcome(ttl_s, after_s, written=True))
    assert minimum <= parameters.slope.value <= maximum
    assert parameters.max_ttl_s.value == 600


def test_few_copies_do_not_overrule_the_model() -> None:
    parameters = LearnedParameters(600, 500)
    for _ in range(3):
        parameters.adjust(BELIEF, SampleOutcome(2.0, 0.6, written=True))
    assert parameters.slope.value == pytest.approx(1, abs=0.1)


def test_older_copies_have_less_weight() -> None:
    """After 5,000 copies of one kind fewer than 1,000 of the other turn the slope round."""
    parameters = LearnedParameters(600, 200)
    for after_s, copies in ((0.6, 5_000), (9.0, 900)):
        for _ in range(copies):
            ttl_s = parameters.slope.value * BELIEF.best_s
            parameters.adjust(BELIEF, SampleOutcome(ttl_s, after_s, written=True))
    assert parameters.slope.value > 2


def test_the_longest_ttl_is_adjusted_by_what_it_decided() -> None:
    parameters, belief = LearnedParameters(600, 100), BELIEF._replace(best_s=1_000.0, writes=1e-3)
    for _ in range(20):
        ttl_s = parameters.max_ttl_s.value
        parameters.adjust(belief, SampleOutcome(ttl_s, 100.0, written=True))
    assert parameters.max_ttl_s.value < 200
    for _ in range(1_000):
        ttl_s = parameters.max_ttl_s.value
        parameters.adjust(belief, SampleOutcome(ttl_s, 700.0, written=False))
    assert parameters.max_ttl_s.value == 600
    assert parameters.slope.value == 1


def test_a_sudden_popularity_shortens_the_longest_ttl() -> None:
    """Now and then a record that was hardly read becomes popular while old copies hold it down.

    By the estimates TTLs were right, so the slope stays; a shorter longest TTL would have
    spared most of it.
    """
    belief = Belief(60.0, 0.0, reads=0.04, writes=0.01, invalidation=0.2, late=1.0)
    quiet, popular = (
        SampleOutcome(60.0, 70.0, written=False),
        SampleOutcome(60.0, 20.0, True, After(200, 5)),
    )
    for every, maximum in ((10, 50.0), (10_000, 600.0)):
        parameters = LearnedParameters(600, 2_000)
        for number in range(1, 400):
            parameters.adjust(belief, popular if number % every == 0 else quiet)
        assert parameters.max_ttl_s.value <= maximum
        assert parameters.slope.value > 0.9
    assert parameters.max_ttl_s.value == 600


def test_no_longest_ttl_makes_ttls_longer_than_the_slope_does() -> None:
    parameters, belief = LearnedParameters(600, 100), BELIEF._replace(best_s=100.0, writes=1e-3)
    for _ in range(50):
        parameters.adjust(belief, SampleOutcome(100.0, 150.0, written=True))
    assert parameters.max_ttl_s.value == 600


@pytest.mark.parametrize("max_ttl_s", [0.0, 0.5, 3.0, inf])
def test_any_longest_ttl_has_candidates(max_ttl_s: float) -> None:
    candidates = LearnedParameters(max_ttl_s, 100).max_ttl_s.candidates
    assert candidates[-1] == max_ttl_s
    assert candidates[0] >= min(1.0, max_ttl_s)


def test_terms_of_classes_are_kept_and_dropped_classes_forgotten() -> None:
    learner = Learner()
    terms = Terms(5.0, Weights())
    learner.set_terms({PARTITION: terms})
    assert max(drive(learner, 1, 1e-6, 1_000, Random(1))) == 5
    parameters = learner.parameters[PARTITION]
    learner.set_terms({PARTITION: terms})
    assert learner.parameters[PARTITION] is parameters
    learner.set_terms({PARTITION: terms._replace(max_ttl_s=50.0)})
    assert max(drive(learner, 1, 1e-6, 5_000, Random(1))) > 5
    learner.set_terms({})
    assert not learner.parameters
    assert not learner.regrets


def test_the_error_shows_how_well_ttls_are_predicted() -> None:
    """Writes that are independent of reads are predicted; writes that follow every read are not."""
    learner = Learner(memory=Memory(transit_s=0))
    drive(learner, 10, 0.1, 20_000, Random(1))
    regret = learner.regrets[PARTITION]
    assert regret.judged > 1_000
    assert abs(regret.error) < 0.1
    surprised, now = Learner(memory=Memory(transit_s=0)), 0.0
    for _ in range(500):
        now += 10
        surprised.missed(PARTITION, KEY, now, surprised.ttl_s(PARTITION, KEY, now))
        surprised.wrote(PARTITION, KEY, now + 0.1)
    assert surprised.regrets[PARTITION].error > 0.3


def test_a_parameter_has_ends_and_lies_between_its_candidates() -> None:
    parameter = Parameter(1, 2.0, 1, 2, 100, trust=100)
    assert list(parameter.candidates) == [0.5, 1, 2, 4]
    ends = []
    for costs in ([1e6, 1e6, 1e6, 0], [0, 1e9, 1e9, 1e9]):
        parameter.adjust(costs)
        ends.append(parameter.value)
    assert ends == [4, 0.5]
    even = Parameter(1, 2.0, 1, 2, 100, trust=100)
    even.adjust([1e6, 0, 0, 1e6])
    assert even.value == pytest.approx(2**0.5, rel=1e-3)


def test_a_parameter_that_remembers_nothing_stays() -> None:
    parameter = Parameter(1, 2.0, 1, 1, 0, trust=100)
    parameter.adjust([1e6, 1e6, 0])
    assert parameter.value == 1


def test_writes_soon_after_reads_change_the_slope() -> None:
    """The model assumes that writes are independent of reads; the outcomes show that they are not.

    With half of the copies lost immediately, the others should be kept longer than its 15 s: by
    hand, 18 s cost least.
    """
    learner, random, now = Learner(memory=Memory(transit_s=0)), Random(1), 0.0
    for _ in range(2_000):
        now += random.expovariate(0.1)
        ttl = learner.ttl_s(PARTITION, KEY, now)
        learner.missed(PARTITION, KEY, now, ttl)
        if random.random() < 0.5:
            learner.wrote(PARTITION, KEY, now + 0.3)
    assert 1.1 < learner.parameters[PARTITION].slope.value < 1.4
    assert learner.regrets[PARTITION].invalidations > learner.regrets[PARTITION].stale_avoided


def test_a_ttl_that_was_granted_shorter_is_no_evidence() -> None:
    learner, now = Learner(LearnerSettings(copies=1)), 0.0
    for _ in range(100):
        now += 1
        learner.ttl_s(PARTITION, KEY, now)
        learner.missed(PARTITION, KEY, now, 1e-3)
        learner.wrote(PARTITION, KEY, now + 0.5)
    assert learner.parameters[PARTITION].slope.value == 1


def test_the_optimum_of_equal_rates() -> None:
    """Ten reads for each write: e^u (1 + a/r²) = 1 + 1/r + u, found by hand for a = 0."""
    assert best_writes_per_ttl(10, 0) == pytest.approx(0.4162, abs=1e-3)
    assert best_writes_per_ttl(1, 1) == 0
    assert relative_cost(0, 10, 1) == 1
    for ratio in (1e-9, 0.3, 1.7, 42.0, 1e5, 1e9):
        assert about_best(ratio, 0.2) == pytest.approx(best_writes_per_ttl(ratio, 0.2), rel=0.05)
