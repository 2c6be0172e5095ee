"""Rates, orders of joins, and plans over a range of rates."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, permutations
from math import isclose
from random import Random
from typing import Any

import pytest

from mediator.base.errors import Invalid
from mediator.continuous.costs import CalibratedCosts, parse_constants
from mediator.continuous.model import Join, Operator, Query, post_order, relational
from mediator.continuous.order import UNLIMITED, Engine, Usage
from mediator.continuous.parser import parse_query
from mediator.continuous.phase_one import order_joins
from mediator.continuous.planning import PlanOptions, everything_on, make_plan, reference_constants
from mediator.continuous.rates import rates_of
from mediator.continuous.report import describe, describe_sweep
from tests.unit.continuous.queries import NEAR_PEAK, averages

CONSTANTS = reference_constants()
OPTIONS = PlanOptions(CONSTANTS)


def test_rates_are_those_of_the_paper() -> None:
    query = parse_query(NEAR_PEAK)
    rates = rates_of(query)
    assert rates["recent"].size == 600_000  # 2,000 a second for five minutes
    assert rates["loads"].produced == 1_000
    assert rates["peaks"].produced == rates["peaks"].size == 1_000
    # λ_L·f·W_R + λ_R·f·W_L
    assert rates["compared"].produced == 1_000 * 1_000 / 1_000 + 1_000 * 300_000 / 1_000
    assert rates["counts"].produced == 1_000


def test_a_window_of_1000_tuples_a_second_and_five_minutes_has_300_000() -> None:
    query = parse_query(NEAR_PEAK).at_rate(0.5)
    assert rates_of(query)["recent"].size == 300_000


def joined_streams(draw: Random, count: int) -> Query:
    """Windows of random sizes, each of which shares a field with the next."""
    document: dict[str, Any] = {"streams": {}, "operators": {}, "slide_s": 1, "distinct": {}}
    for number in range(count):
        fields = {f"k{number}": "integer", f"k{number + 1}": "integer"}
        document["streams"][f"s{number}"] = {"fields": fields, "rate": draw.choice((1, 10, 100))}
        document["operators"][f"w{number}"] = {
            "window": f"s{number}",
            "range_s": draw.choice((1, 10, 60)),
        }
        document["distinct"] |= {f"k{number}": draw.choice((5, 50, 500)), f"k{number + 1}": 20}
    root = "w0"
    for number in range(1, count):
        document["operators"][f"j{number}"] = {"join": [root, f"w{number}"]}
        root = f"j{number}"
    return parse_query({**document, "root": root})


def total(query: Query, root: Operator) -> float:
    costs = CalibratedCosts(query, CONSTANTS, 1.0)
    usage = Usage()
    for operator in relational(root):
        cost = costs.on_spark(operator)
        usage = usage.plus(Usage(cost, cost))
    plan_cost = UNLIMITED.cost(usage)
    return plan_cost.total if plan_cost.is_feasible else plan_cost.bottleneck


def bushy(inputs: tuple[Operator, ...]) -> list[Operator]:
    """Return all trees over inputs in their order, without cross products."""
    if len(inputs) == 1:
        return [inputs[0]]
    trees: list[Operator] = []
    for split in range(1, len(inputs)):
        for left in bushy(inputs[:split]):
            for right in bushy(inputs[split:]):
                join = Join(f"({left.name} {right.name})", left, right)
                trees += [join] if join.shared else []
    return trees


@pytest.mark.parametrize("seed", range(12))
def test_no_order_of_joins_is_better(seed: int) -> None:
    query = joined_streams(Random(seed), 4)
    best_query = order_joins(query, CalibratedCosts(query, CONSTANTS, 1.0), UNLIMITED)
    assert {
        operator.name for operator in post_order(query.root) if not isinstance(operator, Join)
    } == {
        operator.name for operator in post_order(best_query.root) if not isinstance(operator, Join)
    }
    windows = [operator for operator in post_order(query.root) if not isinstance(operator, Join)]
    trees = [tree for inputs in permutations(windows) for tree in bushy(inputs)]
    best = min(total(query, tree) for tree in trees)
    assert isclose(total(query, best_query.root), best)
    assert best_query.root.fields.keys() == query.root.fields.keys()


def test_the_best_order_stays() -> None:
    query = parse_query(averages([1, 3, 5]))
    assert make_plan(query, OPTIONS).query == query


def test_the_chosen_plan_is_no_worse_than_one_engine() -> None:
    for factor in (0.01, 0.1, 1.0, 10.0):
        query = parse_query(NEAR_PEAK).at_rate(factor)
        plan = make_plan(query, OPTIONS)
        for engine in Engine:
            alone = everything_on(engine, query, OPTIONS)
            assert plan.physical.cost.order <= alone.physical.cost.order


def test_an_expensive_trigger_makes_short_batches_infeasible() -> None:
    slow = replace(CONSTANTS, window_trigger=1.5)
    query = parse_query(NEAR_PEAK)
    assert not make_plan(query, PlanOptions(slow)).physical.cost.is_feasible
    assert make_plan(
        query.at_rate(0.01), PlanOptions(slow, trigger_s=10.0)
    ).physical.cost.is_feasible


def test_a_report_adds_up() -> None:
    plan = make_plan(parse_query(NEAR_PEAK), OPTIONS)
    report = describe(plan, OPTIONS)
    utilisations = [operator["utilisation"] for operator in report["operators"]]
    assert isclose(sum(filter(None, utilisations)), report["cost"]["total"])
    assert isclose(max(filter(None, utilisations)), report["cost"]["bottleneck"])
    assert {operator["engine"] for operator in report["operators"]} <= {"spark", "database"}


def test_a_sweep_says_where_the_placement_switches() -> None:
    report = describe_sweep(parse_query(NEAR_PEAK), [0.001, 0.01, 0.1, 1, 10], OPTIONS)
    placements = [rate["in_database"] for rate in report["rates"]]
    changes = sum(one != other for one, other in pairwise(placements))
    assert len(report["switches"]) == changes > 0


def test_constants_are_validated() -> None:
    valid: dict[str, Any] = CONSTANTS.to_json()
    invalid: Any
    assert parse_constants(valid) == CONSTANTS
    for invalid in (
        {**valid, "statement": -1},
        {**valid, "more": 1},
        {},
        [],
        {**valid, "statement": "1"},
    ):
        with pytest.raises(Invalid):
            parse_constants(invalid)
