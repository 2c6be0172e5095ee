"""CATE: the oracles of the paper (docs/papers/cache_sketch.md, section 4), and its statistics."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sketch.protocol.port import Partition
from sketch.ttl import Cate, CateSettings, Constraints, Memory, Static, Terms, Weights
from sketch.ttl.cate import Ratio, estimated_ttl_s

PARTITION = Partition("paper", "articles")
KEY = ("articles/1#all",)


def settings_of(ratio: Ratio, **members: Any) -> CateSettings:
    return CateSettings(
        ratio=ratio, slope={"linear": 0.1, "logistic": 0.5, "unweighted": 0.0}[ratio], **members
    )


@pytest.mark.parametrize(
    ("misses", "writes", "linear", "logistic", "unweighted"),
    [
        (0.1, 0.1, 6.931, 6.931, 6.931),
        (0.2, 0.1, 9.163, 9.741, 10.986),
        (0.1, 0.2, 2.554, 2.370, 2.027),
        (0.01, 0.1, 0.0, 0.1105, 0.953),
    ],
)
def test_ttls_of_the_paper(
    misses: float, writes: float, linear: float, logistic: float, unweighted: float
) -> None:
    assert estimated_ttl_s(misses, writes, settings_of("linear")) == pytest.approx(linear, abs=6e-4)
    assert estimated_ttl_s(misses, writes, settings_of("logistic")) == pytest.approx(
        logistic, abs=6e-4
    )
    assert estimated_ttl_s(misses, writes, settings_of("unweighted")) == pytest.approx(
        unweighted, abs=6e-4
    )


def test_a_violation_shortens_ttls_of_keys_that_are_mostly_read() -> None:
    """Capped before the penalty: 16.09 s, not 600."""
    assert estimated_ttl_s(10, 0.1, settings_of("linear"), violation=0.2) == pytest.approx(
        16.09, abs=6e-3
    )
    assert estimated_ttl_s(10, 0.1, settings_of("linear")) == 600
    severe = settings_of("linear", constraints=Constraints(severity=2))
    assert estimated_ttl_s(10, 0.1, severe, violation=0.2) == pytest.approx(-math.log(0.36) / 0.1)


def test_ends_of_the_scale() -> None:
    assert estimated_ttl_s(0.3, 0.001, settings_of("linear")) == 600
    assert estimated_ttl_s(0.3, 0.0, settings_of("linear")) == 600, "never written"
    for ratio in ("linear", "logistic", "unweighted"):
        assert estimated_ttl_s(0.0, 0.1, settings_of(ratio)) == 0, "never missed"
    assert estimated_ttl_s(1e-9, 1e9, settings_of("logistic")) == pytest.approx(0, abs=1e-6)


def test_a_class_may_have_its_own_weights() -> None:
    """Misses that cost twice as much count as twice as many."""
    costly = CateSettings(ratio="unweighted", weights=Weights(invalidation=1, miss=2))
    assert estimated_ttl_s(0.1, 0.1, costly) == pytest.approx(
        estimated_ttl_s(0.2, 0.1, settings_of("unweighted"))
    )
    other = Partition("paper", "counters")
    cate = Cate(CateSettings(max_ttl_s=60))
    cate.set_terms({other: Terms(5, Weights())})
    assert (cate.ttl_s(PARTITION, KEY, 0), cate.ttl_s(other, KEY, 0)) == (60, 5)


def drive(cate: Cate, misses_s: float, writes_s: float, for_s: float) -> None:
    """Let misses and writes arrive at even intervals."""
    events = [(n * misses_s, True) for n in range(int(for_s / misses_s))]
    events += [(n * writes_s + 0.01, False) for n in range(int(for_s / writes_s))]
    for at, is_miss in sorted(events):
        if is_miss:
            cate.ttl_s(PARTITION, KEY, at)
            cate.missed(PARTITION, KEY, at, 0.0)
        else:
            cate.wrote(PARTITION, KEY, at)


def test_rates_are_the_observed_ones() -> None:
    cate = Cate(settings_of("unweighted"))
    drive(cate, misses_s=5, writes_s=10, for_s=2_000)
    assert cate.ttl_s(PARTITION, KEY, 2_000) == pytest.approx(10.986, rel=0.1)


def test_rates_age_when_nothing_arrives() -> None:
    cate = Cate(settings_of("unweighted", max_ttl_s=1e6))
    drive(cate, misses_s=5, writes_s=10, for_s=1_000)
    ttls = [cate.ttl_s(PARTITION, KEY, at) for at in (1_001, 2_000, 10_000, 100_000)]
    assert ttls == sorted(ttls)
    assert ttls[-1] > 50 * ttls[0]


def test_the_shortest_ttl_counts() -> None:
    cate = Cate()
    drive(cate, misses_s=5, writes_s=5, for_s=500)
    shortest_s = cate.ttl_s(PARTITION, KEY, 500)
    assert 0 < shortest_s < 100
    assert cate.ttl_s(PARTITION, (*KEY, "articles/2#all"), 500) == shortest_s
    assert cate.ttl_s(PARTITION, ("articles/2#all",), 500) == 600
    assert cate.ttl_s(PARTITION, (), 500) == 0


def test_the_filter_bounds_ttls() -> None:
    cate = Cate(settings_of("linear", constraints=Constraints(false_positives=0.05)))
    drive(cate, misses_s=1, writes_s=10, for_s=500)
    free = cate.ttl_s(PARTITION, KEY, 500)
    cate.filled(PARTITION, 0.05)
    assert cate.ttl_s(PARTITION, KEY, 500) == free
    cate.filled(PARTITION, 0.10)
    assert 0 < cate.ttl_s(PARTITION, KEY, 500) < free / 5


def test_the_budget_of_invalidations_bounds_ttls() -> None:
    free, bound = (
        Cate(settings_of("linear")),
        Cate(settings_of("linear", constraints=Constraints(None, 0.01))),
    )
    for cate in (free, bound):
        for at in range(0, 1_000, 10):
            cate.ttl_s(PARTITION, KEY, at)
            cate.missed(PARTITION, KEY, at, 8.0)
            cate.wrote(PARTITION, KEY, at + 5)
        assert cate.regrets[PARTITION].invalidations == 100
    assert bound.ttl_s(PARTITION, KEY, 1_000) < free.ttl_s(PARTITION, KEY, 1_000)


def test_static_learns_nothing() -> None:
    static = Static(7)
    static.missed(PARTITION, KEY, 0)
    static.wrote(PARTITION, KEY, 1)
    static.filled(PARTITION, 1.0)
    static.merge([list(static.share(2))], 2)
    static.set_terms({})
    assert not static.regrets
    assert static.ttl_s(PARTITION, KEY, 3) == 7
    assert Static().ttl_s(PARTITION, KEY, 3) == math.inf


def test_invalid_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="not negative"):
        Weights(stale=-1)
    with pytest.raises(ValueError, match="cost something"):
        Weights(miss=0)
    with pytest.raises(ValueError, match="one key"):
        Cate(memory=Memory(keys=0)).ttl_s(PARTITION, KEY, 0)
