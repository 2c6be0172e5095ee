"""Measurements of streams and joins, and the plan that follows from them."""

from __future__ import annotations

import orjson
import pytest

from mediator.base.integer_program import SolverMissing
from mediator.standing import program
from mediator.standing.model import Attribute, Statistics
from mediator.standing.planning import Plan, PlanOptions, make_plans
from mediator.standing.replanning import choose_plan, is_cheaper, plans_of, workload_of
from mediator.standing.runtime import Runtime
from mediator.standing.sampling import Sampling
from mediator.standing.state import StreamTuple
from tests.unit.standing.papers_queries import EXAMPLE_1, workload


def measure(plan: Plan, seconds: int = 40) -> tuple[Sampling, Runtime]:
    """Run a plan: each second two tuples of r, one of the others; all of r and s join."""
    runtime = Runtime(plan.workload.streams, 1, 1.0)
    runtime.activate(plan)
    sampling = Sampling()
    for second in range(seconds):
        values = {"a": 1, "b": second, "c": second}
        batch = [StreamTuple(name, second, values) for name in "RRSTU"]
        runtime.feed(batch)
        sampling.count(batch)
        sampling.take(runtime, "RSTU", 1.0)
    return sampling, runtime


def plan_of() -> Plan:
    [plan] = make_plans(workload(EXAMPLE_1), "shared", PlanOptions(materialise=False))
    return plan


def test_rates_and_sizes_are_those_of_the_tuples_times() -> None:
    plan = plan_of()
    sampling, runtime = measure(plan)
    assert sampling.rates == pytest.approx({"R": 2, "S": 1, "T": 1, "U": 1}, rel=0.05)
    [pair] = [join for join in sampling.sizes if join.relations == {"S", "T"}]
    # Each second one pair of the same second.
    assert sampling.sizes[pair] == pytest.approx(1, rel=0.05)
    assert sum(sampling.sent.values()) == pytest.approx(runtime.sent.total() / 40, rel=0.1)


def test_measures_outlive_their_holder() -> None:
    sampling, _ = measure(plan_of())
    restored = Sampling.from_json(orjson.loads(orjson.dumps(sampling.to_json())))
    assert (restored.rates, restored.sizes) == (sampling.rates, sampling.sizes)


def test_the_selectivity_of_a_predicate_is_that_of_its_measured_pairs() -> None:
    plan = plan_of()
    sampling, _ = measure(plan)
    statistics = sampling.statistics(plan.workload.joins)
    predicate = frozenset([Attribute("S", "b"), Attribute("T", "b")])
    # Of 2 · 1 · 1 pairs within a window of a second one matches.
    assert statistics.selectivities[predicate] == pytest.approx(0.5, rel=0.05)


def test_another_plan_has_to_save_more_than_the_margin() -> None:
    example = workload(EXAMPLE_1)
    present = plan_of()
    assert not is_cheaper(choose_plan(example, "shared", materialise=False), present)
    # Results of S and T become many: a plan that starts with them costs more.
    sizes = dict(example.statistics.sizes)
    [first] = [join for join in sizes if join.relations == {"S", "T"}]
    rates = example.statistics.rates
    changed_queries = workload_of(
        example.queries, Statistics(rates, {}, {**sizes, first: 100_000.0})
    )
    assert is_cheaper(choose_plan(changed_queries, "shared", materialise=False), present)


@pytest.mark.parametrize("mode", ["shared", "individual"])
def test_without_a_solver_plans_are_greedy(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    def raise_missing(*_: object) -> None:
        raise SolverMissing

    monkeypatch.setattr(program, "minimise", raise_missing)
    plans = plans_of(workload(EXAMPLE_1), mode, materialise=True)  # type: ignore[arg-type]
    assert [plan.is_greedy for plan in plans] == [True] * (1 if mode == "shared" else 2)
