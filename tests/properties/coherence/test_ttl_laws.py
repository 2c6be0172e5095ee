"""Laws of every estimator of TTLs, for any history."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from sketch.protocol.port import Partition
from sketch.ttl import Cate, CateSettings, Constraints, Learner, LearnerSettings, Memory
from sketch.ttl.cate import Ratio, estimated_ttl_s
from sketch.ttl.costs import best_writes_per_ttl
from tests.unit.sketch.expected_costs import relative_cost

PARTITION = Partition("paper", "articles")
KEYS = [f"articles/{number}#all" for number in range(6)]
RATES = st.floats(0, 1e6)
RATIOS: st.SearchStrategy[Ratio] = st.sampled_from(["linear", "logistic", "unweighted"])
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["miss", "write", "filled", "exchange"]),
        st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True),
        st.floats(-1, 100),
        st.sampled_from([None, 0.0, 1.0, 50.0]),
    ),
    max_size=60,
)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)
ENTRY = st.tuples(
    st.text(max_size=3), st.text(max_size=3), *[JSON | st.floats(0, 10)] * 3, JSON
).map(list)
MAX_TTL_S = 30.0
BOUNDED = Constraints(false_positives=0.1, invalidations_per_s=0.5)


@example(5e-324, 2.0, "linear", 0.0, 0.0)
@given(RATES, RATES, RATIOS, st.floats(-2, 2), st.floats(0, 1))
def test_a_ttl_of_cate_lies_between_zero_and_the_maximum(
    misses: float, writes: float, ratio: Ratio, slope: float, violation: float
) -> None:
    cate = CateSettings(MAX_TTL_S, ratio=ratio, slope=slope)
    ttl = estimated_ttl_s(misses, writes, cate, violation)
    assert 0 <= ttl <= MAX_TTL_S * (1 + 1e-9)
    assert ttl <= estimated_ttl_s(misses, writes, cate) * (1 + 1e-9)


@given(RATES, RATES, RATES, RATIOS)
def test_more_misses_never_shorten_a_ttl(
    fewer: float, more: float, writes: float, ratio: Ratio
) -> None:
    cate = CateSettings(MAX_TTL_S, ratio=ratio)
    fewer, more = sorted((fewer, more))
    assert estimated_ttl_s(fewer, writes, cate) <= estimated_ttl_s(more, writes, cate) * (1 + 1e-9)


@given(st.floats(1e-3, 1e5), st.floats(1e-3, 10), st.floats(0.05, 3), st.floats(1e-4, 40))
def test_no_ttl_costs_less_than_the_best(r: float, a: float, s: float, other: float) -> None:
    best = best_writes_per_ttl(r, a, s)
    if r <= a:
        assert best == 0
        return
    min_cost = relative_cost(min(best, 60), r, a, s)
    assert min_cost <= relative_cost(other, r, a, s) * (1 + 1e-3)


def estimators(seed: int) -> list[Cate | Learner]:
    memory = Memory(keys=3)
    return [
        Cate(CateSettings(max_ttl_s=MAX_TTL_S, constraints=BOUNDED), memory=memory, seed=seed),
        Learner(LearnerSettings(MAX_TTL_S, constraints=BOUNDED), memory=memory, seed=seed),
    ]


@given(EVENTS, st.integers(0, 3))
def test_ttls_are_in_range_and_repeatable_for_any_history(events: list[Any], seed: int) -> None:
    for first, second in zip(estimators(seed), estimators(seed), strict=True):
        now = 0.0
        for event, keys, step, ttl in events:
            now += step
            ttls = [estimator.ttl_s(PARTITION, keys, now) for estimator in (first, second)]
            assert ttls[0] == ttls[1]
            assert 0 <= ttls[0] <= MAX_TTL_S * (1 + 1e-9)
            for estimator in (first, second):
                _notify(estimator, event, keys, now, ttl)


def _notify(
    estimator: Cate | Learner, event: str, keys: list[str], now: float, ttl: float | None
) -> None:
    match event:
        case "miss":
            estimator.missed(PARTITION, keys, now, ttl)
        case "write":
            estimator.wrote(PARTITION, keys, now)
        case "filled":
            estimator.filled(PARTITION, 0.3)
        case _:
            estimator.merge([list(estimator.share(now))], now)


@given(st.lists(JSON | ENTRY.map(lambda entry: [entry]), max_size=3))
def test_any_shared_state_is_merged_or_ignored(others: list[Any]) -> None:
    for estimator in estimators(0):
        estimator.missed(PARTITION, KEYS[:1], 0)
        estimator.wrote(PARTITION, KEYS[:1], 1)
        estimator.merge(others, 2)
        ttl = estimator.ttl_s(PARTITION, KEYS[:1], 3)
        assert 0 <= ttl <= MAX_TTL_S
        assert math.isfinite(ttl)
