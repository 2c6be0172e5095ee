"""Placement of operators: the paper's numbers of plans, and exhaustive search."""

from __future__ import annotations

from math import isclose
from random import Random

import pytest

from mediator.continuous.model import Operator, relational
from mediator.continuous.order import UNLIMITED, Capacity, PlanCost
from mediator.continuous.phase_two import TooManyPlans, place
from tests.unit.continuous.trees import (
    RandomCosts,
    chain,
    complete,
    cost_of,
    eight_way,
    exhaustive,
    five_way,
    random_tree,
    top,
    two_way,
)


@pytest.mark.parametrize(
    ("root", "operators", "plans"),
    [
        (two_way(), 5, 10),
        (top(two_way()), 6, 11),
        (top(five_way()), 15, 312),
        (top(eight_way()), 24, 8411),
        *((chain(n), n, n + 1) for n in (1, 2, 7)),
        *((complete(h), 2**h - 1, f) for h, f in enumerate((2, 5, 26, 677), 1)),
    ],
)
def test_as_many_plans_are_left_as_the_paper_counts(
    root: Operator, operators: int, plans: int
) -> None:
    assert len(relational(root)) == operators
    assert place(root, RandomCosts(1, 1.0), UNLIMITED, None).examined == plans


@pytest.mark.parametrize(
    ("capacity", "trees", "max_operators"),
    [
        (UNLIMITED, 150, 8),
        (Capacity(machine=1), 100, 7),
        (Capacity(1, 2), 100, 7),
        (Capacity(spark=2), 100, 7),
    ],
)
def test_no_plan_is_better_than_the_one_that_is_found(
    capacity: Capacity, trees: int, max_operators: int
) -> None:
    draw = Random(7)
    for number in range(trees):
        root = random_tree(draw, draw.randint(2, max_operators))
        costs = RandomCosts(number, draw.choice((0.2, 0.8, 1.5, 3.0)))
        placement, best = place(root, costs, capacity), exhaustive(root, costs, capacity)
        assert isclose(placement.cost.order[1], best.order[1])
        assert placement.cost.is_feasible is best.is_feasible
        cost = cost_of(root, costs, capacity, placement.engines)
        assert isclose(cost.total, placement.cost.total)
        assert isclose(cost.bottleneck, placement.cost.bottleneck)


def test_a_large_query_is_divided() -> None:
    root, costs = top(eight_way()), RandomCosts(1, 0.1)
    divided, undivided = place(root, costs), place(root, costs, UNLIMITED, None)
    assert divided.examined < undivided.examined / 10
    assert divided.engines.keys() == undivided.engines.keys()
    assert isclose(cost_of(root, costs, UNLIMITED, divided.engines).total, divided.cost.total)
    assert undivided.cost.total <= divided.cost.total


def test_a_query_that_should_be_divided_is_refused_undivided() -> None:
    with pytest.raises(TooManyPlans):
        place(complete(5), RandomCosts(1, 1.0), UNLIMITED, None)
    assert place(complete(5), RandomCosts(1, 1.0)).examined < 5_000


@pytest.mark.parametrize(
    ("better", "worse"),
    [((0.9, 5), (1.1, 2)), ((0.9, 2), (0.5, 3)), ((1.5, 9), (2, 3)), ((1.0, 9), (1.01, 1))],
)
def test_plans_are_ordered_by_definition_1(
    better: tuple[float, float], worse: tuple[float, float]
) -> None:
    assert PlanCost(*better).order < PlanCost(*worse).order


def test_a_machine_of_few_cores_is_shared() -> None:
    costs = RandomCosts(3, 0.9)
    root = chain(4)
    alone, shared = place(root, costs), place(root, costs, Capacity(machine=1))
    assert alone.cost.is_feasible
    assert shared.cost.bottleneck >= shared.cost.total
