"""How long single operations wait for a batch, computed from measured costs."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mediator.base.averages import MeasuredCosts
from mediator.operations.batch_wait import MAX_CALLS, BatchWait
from mediator.schema.batching import WaitBound


def measured_wait(bound: WaitBound, constant_s: float, linear_s: float, rate: float) -> BatchWait:
    """Return the wait after batches of two sizes, at `rate` operations a second."""
    wait, period_s = BatchWait(bound), max(0.1, 10 / rate)
    for number in range(40):
        calls, arrivals = (10 if number % 2 else 20), round(rate * period_s)
        wait.executed(calls, arrivals, constant_s + linear_s * calls, number * period_s)
    return wait


def test_nothing_waits_before_anything_is_measured() -> None:
    wait = BatchWait(WaitBound(0.01))
    assert (wait.wait_s, wait.max_calls) == (0.0, MAX_CALLS)
    assert wait.document()["rate"] is None


def test_the_shortest_wait_with_which_batches_keep_up() -> None:
    """a = 2 ms, b = 0.1 ms, R = 2,000 a second: a / (1 - b R) = 2.5 ms."""
    wait = measured_wait(WaitBound(0.05, 0.1), 0.002, 0.0001, 2000)
    assert wait.wait_s == pytest.approx(0.0025, rel=0.02)
    assert "begin 0.0025" in wait.why
    assert wait.document()["constant_s"] == pytest.approx(0.002, rel=0.02)


def test_a_wait_never_exceeds_the_maximum() -> None:
    wait = measured_wait(WaitBound(0.001, 0.1), 0.002, 0.0001, 2000)
    assert wait.wait_s == 0.001
    assert "max_wait_s is 0.001 s" in wait.why


def test_nobody_waits_if_less_than_one_more_operation_is_expected() -> None:
    wait = measured_wait(WaitBound(0.05, 0.1), 0.002, 0.0001, 100)
    assert wait.wait_s == 0
    assert "less than one more is expected" in wait.why


def test_nobody_waits_if_the_goal_could_not_hold() -> None:
    wait = measured_wait(WaitBound(0.01, 0.015), 0.01, 0.0001, 5000)
    assert wait.wait_s == 0
    assert "the goal of 0.015 s could not hold" in wait.why


def test_overloaded_batches_run_back_to_back() -> None:
    wait = measured_wait(WaitBound(0.05, 0.1), 0.002, 0.001, 2000)
    assert wait.wait_s == 0
    assert "back to back" in wait.why


def test_calls_of_a_pipelining_store_never_wait() -> None:
    wait = BatchWait(WaitBound(0.05), pipelines=True)
    for number in range(10):
        wait.executed(10, 10, 0.01, number * 0.6)
    assert wait.wait_s == 0
    assert "share round trips" in wait.why


def test_a_batch_of_large_objects_is_small() -> None:
    wait = measured_wait(WaitBound(0.01), 0.002, 0.025, 10)
    assert wait.max_calls == 9
    assert measured_wait(WaitBound(0.01, 0.02), 0.002, 0.025, 10).max_calls == 1


@given(
    st.floats(1e-5, 0.2), st.floats(0, 1e-2), st.floats(0.1, 1e5), st.floats(1e-4, 1), st.booleans()
)
def test_wait_and_batch_together_are_below_the_goal(
    constant_s: float, linear_s: float, rate: float, max_wait_s: float, has_goal: bool
) -> None:
    bound = WaitBound(max_wait_s, max_wait_s * 2 if has_goal else inf)
    wait = measured_wait(bound, constant_s, linear_s, rate)
    assert 0 <= wait.wait_s <= bound.max_wait_s
    assert 1 <= wait.max_calls <= MAX_CALLS
    if wait.wait_s:
        document = wait.document()
        batch_s = document["constant_s"] + document["linear_s"] * document["rate"] * wait.wait_s
        assert wait.wait_s + batch_s <= bound.goal_s * (1 + 1e-9)


@given(st.floats(0, 1), st.floats(0, 0.1), st.lists(st.integers(1, 100), min_size=2, max_size=30))
def test_linear_costs_are_found(constant_s: float, linear_s: float, batches: list[int]) -> None:
    measure = MeasuredCosts()
    for calls in batches:
        measure.add(calls, constant_s + linear_s * calls)
    costs = measure.costs
    assert costs.constant_s >= 0
    assert costs.linear_s >= 0
    if len(set(batches)) > 1:
        assert costs.of_batch(50) == pytest.approx(constant_s + linear_s * 50, rel=1e-3, abs=1e-3)


def test_costs_are_assumed_constant_until_batches_differ_in_size() -> None:
    measure = MeasuredCosts()
    assert measure.costs.of_batch(10) == 0
    measure.add(5, 0.1)
    measure.add(5, 0.1)
    assert measure.costs.constant_s == pytest.approx(0.1)
    assert measure.costs.linear_s == 0
