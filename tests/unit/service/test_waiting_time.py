"""The waiting time by the formulas of its borders, and the theorems as properties."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mediator.base.waiting_time import Costs, waiting_time

SECONDS = st.floats(1e-4, 1.0)
RATES = st.floats(0.01, 1000.0)
SELECTIVITIES = st.integers(1, 100).map(lambda values: 1 / values)


def test_the_numbers_of_the_worked_example() -> None:
    """Oracle E4: a 100 ms, b 20 ms, R 5 a second, sel 0.1, bound 10 s."""
    costs = Costs(0.1, 0.02)
    by_latency = waiting_time(costs, 5, 0.1, 10, "latency")
    by_work = waiting_time(costs, 5, 0.1, 10, "work")
    assert by_latency.wait_s == pytest.approx(0.1111, abs=1e-4)
    assert by_latency.batch < 1
    assert by_work.wait_s == pytest.approx(0.9802, abs=1e-4)
    assert by_work.batch == pytest.approx(4.90, abs=0.01)
    assert costs.of_batch(by_work.batch) / by_work.batch == pytest.approx(0.0404, abs=1e-4)
    assert costs.speedup(by_work.batch) == pytest.approx(2.97, abs=0.01)
    assert costs.speedup(1e9) == pytest.approx(6)


def test_a_bound_that_cannot_hold_is_explained_with_the_numbers() -> None:
    refused = waiting_time(Costs(1.0, 0.01), 5, 0.1, 2, "latency")
    assert not refused.is_valid
    assert "The bound of 2 s cannot hold" in refused.explanation
    assert "5 messages a second" in refused.explanation


def test_overload_takes_the_largest_batch_that_meets_the_bound() -> None:
    costs = Costs(0.1, 0.02)
    overloaded = waiting_time(costs, 100, 0.1, 10, "work")
    assert (overloaded.wait_s, overloaded.lower_s, overloaded.is_valid) == (0.0, None, False)
    batch_s = costs.of_batch(overloaded.batch)
    assert batch_s / 0.1 + batch_s == pytest.approx(10)


@given(SECONDS, SECONDS, RATES, SELECTIVITIES, st.sampled_from(["latency", "work"]))
def test_a_valid_wait_keeps_the_bound_and_is_no_shorter_than_a_batch(
    constant_s: float, linear_s: float, rate: float, selectivity: float, objective: str
) -> None:
    """Theorem 2: (1/sel) * T + T_P is within the bound; and 0 <= T_P <= T."""
    costs = Costs(constant_s, linear_s)
    wait = waiting_time(costs, rate, selectivity, 10, objective)  # type: ignore[arg-type]
    assume(wait.is_valid)
    batch_s = costs.of_batch(wait.batch)
    assert batch_s <= wait.wait_s * (1 + 1e-9)
    assert wait.wait_s / selectivity + batch_s <= 10 * (1 + 1e-9)


@given(SECONDS, SECONDS, st.floats(1, 1e6), st.floats(1, 1e6))
def test_larger_batches_take_no_more_time_for_each_message(
    constant_s: float, linear_s: float, first_batch: float, second_batch: float
) -> None:
    """Theorem 1; and theorem 3: no less than the linear part."""
    costs, small, large = (
        Costs(constant_s, linear_s),
        min(first_batch, second_batch),
        max(first_batch, second_batch),
    )
    of_small, of_large = costs.of_batch(small) / small, costs.of_batch(large) / large
    assert linear_s <= of_large <= of_small * (1 + 1e-9)


@given(SECONDS, SECONDS, RATES, SELECTIVITIES)
def test_the_borders_are_where_their_conditions_are_equations(
    constant_s: float, linear_s: float, rate: float, selectivity: float
) -> None:
    assume(rate * linear_s < 0.99)
    wait = waiting_time(Costs(constant_s, linear_s), rate, selectivity, 10, "latency")
    assert wait.lower_s is not None
    batch_s = constant_s + linear_s * rate * wait.lower_s
    assert batch_s == pytest.approx(wait.lower_s)
    max_latency_s = wait.upper_s / selectivity + constant_s + linear_s * rate * wait.upper_s
    assert max_latency_s == pytest.approx(10)
