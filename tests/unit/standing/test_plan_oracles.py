"""Plans against the paper's examples, and against a search of all choices."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from itertools import product
from random import Random
from statistics import mean
from typing import Any

import pytest

from benchmarks.harness.standing_queries import PAPERS_SCHEMA, drawn_workload
from mediator.base.errors import Invalid
from mediator.standing import planning, problem
from mediator.standing.model import Attribute, Join, Workload, stream_store
from mediator.standing.planning import MODES, Mode, Plan, PlanOptions, make_plans
from mediator.standing.probe_orders import intermediates, partition_candidates, probe_orders
from mediator.standing.problem import Choice, Problem, build_problem, prune
from mediator.standing.program import Solution, solve
from tests.unit.standing.papers_queries import EXAMPLE_1, EXAMPLE_2, document, workload

STREAMS_ONLY = PlanOptions(materialise=False)


def plan(queries: dict[str, Any] | Workload, mode: Mode = "shared", **options: Any) -> Plan:
    parsed = queries if isinstance(queries, Workload) else workload(queries)
    # A busy machine must not change the plan.
    (result,) = make_plans(parsed, mode, PlanOptions(**{"limit_s": 120.0, **options}))
    return result


def orders_of(result: Plan) -> set[str]:
    return {str(order) for order in result.choice.values()}


def exhaustive(instance: Problem) -> float:
    """Return the cost of the cheapest of all valid choices."""
    return min(instance.cost(choice) for choice in _choices(instance, list(instance.queries), {}))


def _choices(instance: Problem, pending: list[Join], chosen: Choice) -> Iterator[Choice]:
    if not pending:
        if instance.replicas or _keeps_stores_once(chosen):
            yield chosen
        return
    join, *rest = pending
    if len(join.relations) == 1 or (join, min(join.relations)) in chosen:
        yield from _choices(instance, rest, chosen)
        return
    starts = [(join, name) for name in sorted(join.relations)]
    for orders in product(*(instance.candidates[start] for start in starts)):
        probed = [store for order in orders for store in order.probed]
        additions = dict(zip(starts, orders, strict=True))
        yield from _choices(instance, [*rest, *probed], {**chosen, **additions})


def _keeps_stores_once(choice: Choice) -> bool:
    layouts = {step for order in choice.values() for step in order.steps}
    return len(layouts) == len({layout.join for layout in layouts})


def test_two_queries_of_475_cost_800_together() -> None:
    individual = make_plans(workload(EXAMPLE_1), "individual", STREAMS_ONLY)
    assert [p.cost for p in individual] == [475, 475]
    assert orders_of(individual[0]) == {"⟨R, S, T⟩", "⟨S, R, T⟩", "⟨T, S, R⟩"}
    shared = plan(EXAMPLE_1, materialise=False)
    assert shared.cost == 800
    assert shared.gap == pytest.approx(0, abs=1e-6)
    assert {"⟨S, T, R⟩", "⟨T, S, U⟩"} <= orders_of(shared)
    assert shared.variables == 8 + 14


def test_the_greedy_choice_switches_one_of_the_two() -> None:
    assert plan(EXAMPLE_1, "greedy", materialise=False).cost == 875


def test_the_steps_of_an_order_cost_what_the_paper_says() -> None:
    instance = build_problem(workload(EXAMPLE_1), materialise=False, replicas=False)
    costs = {str(order): cost for order, cost in instance.costs.items()}
    assert costs["⟨S, T⟩"] == costs["⟨S, R⟩"] == 100
    assert costs["⟨S, T, R⟩"] == 75
    assert costs["⟨S, R, T⟩"] == 50


def test_intermediate_results_are_connected_parts() -> None:
    q1, q2 = workload(EXAMPLE_2).joins
    assert [str(result) for result in intermediates(q1)] == ["R⋈S", "S⋈T"]
    assert [str(result) for result in intermediates(q2)] == ["S⋈T", "T⋈U"]
    (shared,) = {*intermediates(q1)} & {*intermediates(q2)}
    assert str(shared) == "S⋈T"


CANDIDATES = {
    "R": {"⟨R, S, T⟩", "⟨R, S⋈T⟩"},
    "S": {"⟨S, T, R⟩", "⟨S, R, T⟩"},
    "T": {"⟨T, S, R⟩", "⟨T, R⋈S⟩"},
}


@pytest.mark.parametrize("start", CANDIDATES)
def test_the_candidates_are_those_of_figure_3(start: str) -> None:
    example = workload({**EXAMPLE_2, "parallelism": 1})
    q1 = example.queries["q1"]
    stores = [*map(stream_store, "RST"), *intermediates(q1)]
    orders = probe_orders(q1, start, stores, partition_candidates(example, stores))
    assert {str(order) for order in orders} == CANDIDATES[start]


def test_six_decorated_orders_have_eight_steps() -> None:
    example = workload(EXAMPLE_2)
    q1 = example.queries["q1"]
    orders = build_problem(example, materialise=True, replicas=True).candidates[q1, "R"]
    assert {str(order) for order in orders} == {
        "⟨R, S[b], T[c]⟩",
        "⟨R, S[b], T[d]⟩",
        "⟨R, S[c], T[c]⟩",
        "⟨R, S[c], T[d]⟩",
        "⟨R, S⋈T[S.b]⟩",
        "⟨R, S⋈T[T.d]⟩",
    }
    assert len({prefix for order in orders for prefix in order.prefixes}) == 8


def test_a_store_that_is_partitioned_by_an_unknown_attribute_gets_every_tuple() -> None:
    example = workload(EXAMPLE_2)
    costs = build_problem(example, materialise=True, replicas=True).costs
    by_name = {str(order): cost for order, cost in costs.items()}
    assert by_name["⟨R, S[b]⟩"] == 100
    assert by_name["⟨R, S[c]⟩"] == 500
    assert by_name["⟨R, S[b], T[d]⟩"] == 5 * by_name["⟨R, S[b], T[c]⟩"]


def test_an_attribute_is_known_by_equality_through_others() -> None:
    chain = document({"R": "a", "S": "a", "T": "x", "U": "x"}, parallelism=5)
    chain["queries"]["q1"]["predicates"].append(["S.a", "T.x"])
    instance = build_problem(workload(chain), materialise=True, replicas=True)
    costs = {str(order): cost for order, cost in instance.costs.items()}
    assert costs["⟨R, S⋈T[T.x]⟩"] == costs["⟨R, S⋈T[S.a]⟩"] == 100


def test_the_latest_tuple_is_as_likely_in_each_relation_of_a_probed_intermediate_result() -> None:
    queries = workload(document({"R": "a", "S": "ab", "T": "bc", "U": "c"}))
    instance = build_problem(queries, materialise=True, replicas=False)
    (order,) = (candidate for candidate in instance.costs if str(candidate) == "⟨R, S⋈T, U⟩")
    assert instance.costs[order] == queries.statistics.size(order.before.join) / 3


def test_an_intermediate_result_has_the_attributes_that_join_it_to_others() -> None:
    example = workload(EXAMPLE_2)
    results = [result for join in example.joins for result in intermediates(join)]
    candidates = {
        str(result): attributes
        for result, attributes in partition_candidates(example, results).items()
    }
    assert candidates["R⋈S"] == [Attribute("S", "c")]
    assert candidates["S⋈T"] == [Attribute("S", "b"), Attribute("T", "d")]


def test_an_intermediate_result_is_chosen_and_filled_where_that_is_cheaper() -> None:
    result = plan(EXAMPLE_1)
    assert result.cost == 700
    assert {"⟨R, S⋈T⟩", "⟨U, S⋈T⟩", "⟨S, T⟩", "⟨T, S⟩"} <= orders_of(result)


SMALL = {
    "first": EXAMPLE_1,
    "second": {**EXAMPLE_2, "parallelism": 1},
    "three tasks": {**EXAMPLE_1, "parallelism": 3},
    "zero sizes": {
        **EXAMPLE_1,
        "sizes": [{**size, "size": 0} for size in EXAMPLE_1["sizes"]],
    },
}


# With three tasks and intermediate results a search of all choices would not end.
CASES = [
    (name, materialise)
    for name in SMALL
    for materialise in (False, True)
    if name != "three tasks" or not materialise
]


@pytest.mark.parametrize("replicas", [False, True], ids=["once", "replicas"])
@pytest.mark.parametrize(("name", "materialise"), CASES)
def test_the_solver_finds_the_cheapest_of_all_choices(
    name: str, materialise: bool, replicas: bool
) -> None:
    instance = build_problem(workload(SMALL[name]), materialise=materialise, replicas=replicas)
    choice = solve(instance, 120).choice
    assert choice is not None
    assert prune(instance.queries, choice) == choice
    assert replicas or _keeps_stores_once(choice)
    assert instance.cost(choice) == pytest.approx(exhaustive(instance))


def test_a_step_is_paid_for_if_another_one_of_its_order_costs_nothing() -> None:
    queries = deepcopy(EXAMPLE_1)
    queries["sizes"][1]["size"] = 0
    result = plan(queries, materialise=False)
    assert result.cost == sum(result.costs.values())


def test_a_store_is_kept_once_unless_replicas_are_allowed() -> None:
    sample = drawn_workload(PAPERS_SCHEMA, 100, 3, Random(1))
    single, replicated = (
        plan(sample, materialise=False, replicas=allowed) for allowed in (False, True)
    )
    assert _keeps_stores_once(single.choice)
    assert not _keeps_stores_once(replicated.choice)
    assert replicated.cost < single.cost


def test_a_hundred_random_queries_have_the_size_and_the_savings_of_the_paper() -> None:
    workloads = [drawn_workload(PAPERS_SCHEMA, 100, 3, Random(seed)) for seed in range(12)]
    options = PlanOptions(materialise=False, replicas=True)
    shared = [plan(sample, materialise=False, replicas=True) for sample in workloads]
    individual = [
        sum(p.cost for p in make_plans(sample, "individual", options)) for sample in workloads
    ]
    assert mean(p.variables for p in shared) == pytest.approx(1717, rel=0.01)
    ratio = mean(one.cost / other for one, other in zip(shared, individual, strict=True))
    assert ratio == pytest.approx(0.54, abs=0.01)


def test_without_replicas_a_third_of_that_is_saved_at_least() -> None:
    sample = drawn_workload(PAPERS_SCHEMA, 100, 3, Random(1))
    individual = sum(p.cost for p in make_plans(sample, "individual", STREAMS_ONLY))
    assert plan(sample, materialise=False).cost < 2 / 3 * individual


@pytest.mark.parametrize("mode", MODES)
def test_no_mode_costs_less_than_the_shared_one(mode: Mode) -> None:
    options = PlanOptions(replicas=True)
    cost = sum(p.cost for p in make_plans(workload(EXAMPLE_2), mode, options))
    assert plan(EXAMPLE_2, replicas=True).cost <= cost


@pytest.mark.parametrize("outcome", ["nothing", "worse"])
def test_at_its_limit_the_greedy_choice_is_taken(
    outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = build_problem(workload(EXAMPLE_1), materialise=False, replicas=False)
    unshared = {
        start: min(orders, key=instance.costs.__getitem__)
        for start, orders in instance.candidates.items()
    }
    solution = Solution(None if outcome == "nothing" else unshared, 500.0, 1.0)
    monkeypatch.setattr(planning, "solve", lambda *_: solution)
    result = plan(EXAMPLE_1, materialise=False)
    assert (result.is_greedy, result.cost) == (True, 875)
    assert result.gap == pytest.approx(1 - 500 / 875)


def test_a_solver_without_time_ends_with_a_valid_choice() -> None:
    sample = drawn_workload(PAPERS_SCHEMA, 30, 3, Random(2))
    result = plan(sample, materialise=False, limit_s=1e-9)
    assert prune(sample.joins, result.choice) == result.choice
    assert _keeps_stores_once(result.choice)
    assert 0 <= result.gap <= 1


def test_too_many_candidates_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problem, "MAX_CANDIDATES", 7)
    with pytest.raises(Invalid, match="candidate probe orders"):
        plan(EXAMPLE_1, materialise=False)


def test_every_stream_of_a_query_is_stored_if_nothing_probes_it() -> None:
    result = plan(EXAMPLE_1)
    assert {"R", "S", "T", "U"} <= {str(layout.join) for layout in result.stores}
