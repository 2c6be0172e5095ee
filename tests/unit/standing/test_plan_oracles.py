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


def plan(of: dict[str, Any] | Workload, mode: Mode = "shared", **options: Any) -> Plan:
    parsed = of if isinstance(of, Workload) else workload(of)
    # A busy machine is no reason for another plan.
    (found,) = make_plans(parsed, mode, PlanOptions(**{"limit_s": 120.0, **options}))
    return found


def orders_of(found: Plan) -> set[str]:
    return {str(order) for order in found.choice.values()}


def exhaustive(of: Problem) -> float:
    """Return the cost of the cheapest of all valid choices."""
    return min(of.cost(choice) for choice in _choices(of, list(of.queries), {}))


def _choices(of: Problem, pending: list[Join], chosen: Choice) -> Iterator[Choice]:
    if not pending:
        if of.replicas or _keeps_stores_once(chosen):
            yield chosen
        return
    join, *rest = pending
    if len(join.relations) == 1 or (join, min(join.relations)) in chosen:
        yield from _choices(of, rest, chosen)
        return
    starts = [(join, name) for name in sorted(join.relations)]
    for picked in product(*(of.candidates[start] for start in starts)):
        probed = [store for order in picked for store in order.probed]
        more = dict(zip(starts, picked, strict=True))
        yield from _choices(of, [*rest, *probed], {**chosen, **more})


def _keeps_stores_once(choice: Choice) -> bool:
    layouts = {step for order in choice.values() for step in order.steps}
    return len(layouts) == len({layout.join for layout in layouts})


def test_two_queries_of_475_cost_800_together() -> None:
    alone = make_plans(workload(EXAMPLE_1), "individual", STREAMS_ONLY)
    assert [each.cost for each in alone] == [475, 475]
    assert orders_of(alone[0]) == {"⟨R, S, T⟩", "⟨S, R, T⟩", "⟨T, S, R⟩"}
    shared = plan(EXAMPLE_1, materialise=False)
    assert shared.cost == 800
    assert shared.gap == pytest.approx(0, abs=1e-6)
    assert {"⟨S, T, R⟩", "⟨T, S, U⟩"} <= orders_of(shared)
    assert shared.variables == 8 + 14


def test_the_greedy_choice_switches_one_of_the_two() -> None:
    assert plan(EXAMPLE_1, "greedy", materialise=False).cost == 875


def test_the_steps_of_an_order_cost_what_the_paper_says() -> None:
    of = build_problem(workload(EXAMPLE_1), materialise=False, replicas=False)
    costs = {str(order): cost for order, cost in of.costs.items()}
    assert costs["⟨S, T⟩"] == costs["⟨S, R⟩"] == 100
    assert costs["⟨S, T, R⟩"] == 75
    assert costs["⟨S, R, T⟩"] == 50


def test_intermediate_results_are_connected_parts() -> None:
    q1, q2 = workload(EXAMPLE_2).joins
    assert [str(part) for part in intermediates(q1)] == ["R⋈S", "S⋈T"]
    assert [str(part) for part in intermediates(q2)] == ["S⋈T", "T⋈U"]
    (shared,) = {*intermediates(q1)} & {*intermediates(q2)}
    assert str(shared) == "S⋈T"


CANDIDATES = {
    "R": {"⟨R, S, T⟩", "⟨R, S⋈T⟩"},
    "S": {"⟨S, T, R⟩", "⟨S, R, T⟩"},
    "T": {"⟨T, S, R⟩", "⟨T, R⋈S⟩"},
}


@pytest.mark.parametrize("start", CANDIDATES)
def test_the_candidates_are_those_of_figure_3(start: str) -> None:
    of = workload({**EXAMPLE_2, "parallelism": 1})
    q1 = of.queries["q1"]
    stores = [*map(stream_store, "RST"), *intermediates(q1)]
    found = probe_orders(q1, start, stores, partition_candidates(of, stores))
    assert {str(order) for order in found} == CANDIDATES[start]


def test_six_decorated_orders_have_eight_steps() -> None:
    of = workload(EXAMPLE_2)
    q1 = of.queries["q1"]
    orders = build_problem(of, materialise=True, replicas=True).candidates[q1, "R"]
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
    of = workload(EXAMPLE_2)
    costs = build_problem(of, materialise=True, replicas=True).costs
    by_name = {str(order): cost for order, cost in costs.items()}
    assert by_name["⟨R, S[b]⟩"] == 100
    assert by_name["⟨R, S[c]⟩"] == 500
    assert by_name["⟨R, S[b], T[d]⟩"] == 5 * by_name["⟨R, S[b], T[c]⟩"]


def test_an_attribute_is_known_by_equality_through_others() -> None:
    chain = document({"R": "a", "S": "a", "T": "x", "U": "x"}, parallelism=5)
    chain["queries"]["q1"]["predicates"].append(["S.a", "T.x"])
    of = build_problem(workload(chain), materialise=True, replicas=True)
    costs = {str(order): cost for order, cost in of.costs.items()}
    assert costs["⟨R, S⋈T[T.x]⟩"] == costs["⟨R, S⋈T[S.a]⟩"] == 100


def test_the_latest_tuple_is_as_likely_in_each_relation_of_a_probed_intermediate_result() -> None:
    of = workload(document({"R": "a", "S": "ab", "T": "bc", "U": "c"}))
    found = build_problem(of, materialise=True, replicas=False)
    (order,) = (each for each in found.costs if str(each) == "⟨R, S⋈T, U⟩")
    assert found.costs[order] == of.statistics.size(order.before.join) / 3


def test_an_intermediate_result_has_the_attributes_that_join_it_to_others() -> None:
    of = workload(EXAMPLE_2)
    parts = [part for join in of.joins for part in intermediates(join)]
    found = {str(part): at for part, at in partition_candidates(of, parts).items()}
    assert found["R⋈S"] == [Attribute("S", "c")]
    assert found["S⋈T"] == [Attribute("S", "b"), Attribute("T", "d")]


def test_an_intermediate_result_is_chosen_and_filled_where_that_is_cheaper() -> None:
    found = plan(EXAMPLE_1)
    assert found.cost == 700
    assert {"⟨R, S⋈T⟩", "⟨U, S⋈T⟩", "⟨S, T⟩", "⟨T, S⟩"} <= orders_of(found)


SMALL = {
    "first": EXAMPLE_1,
    "second": {**EXAMPLE_2, "parallelism": 1},
    "three tasks": {**EXAMPLE_1, "parallelism": 3},
    "zero sizes": {
        **EXAMPLE_1,
        "sizes": [{**each, "size": 0} for each in EXAMPLE_1["sizes"]],
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
    of = build_problem(workload(SMALL[name]), materialise=materialise, replicas=replicas)
    choice = solve(of, 120).choice
    assert choice is not None
    assert prune(of.queries, choice) == choice
    assert replicas or _keeps_stores_once(choice)
    assert of.cost(choice) == pytest.approx(exhaustive(of))


def test_a_step_is_paid_for_if_another_one_of_its_order_costs_nothing() -> None:
    of = deepcopy(EXAMPLE_1)
    of["sizes"][1]["size"] = 0
    found = plan(of, materialise=False)
    assert found.cost == sum(found.costs.values())


def test_a_store_is_kept_once_unless_replicas_are_allowed() -> None:
    of = drawn_workload(PAPERS_SCHEMA, 100, 3, Random(1))
    once, replicas = (plan(of, materialise=False, replicas=each) for each in (False, True))
    assert _keeps_stores_once(once.choice)
    assert not _keeps_stores_once(replicas.choice)
    assert replicas.cost < once.cost


def test_a_hundred_random_queries_have_the_size_and_the_savings_of_the_paper() -> None:
    workloads = [drawn_workload(PAPERS_SCHEMA, 100, 3, Random(seed)) for seed in range(12)]
    options = PlanOptions(materialise=False, replicas=True)
    shared = [plan(of, materialise=False, replicas=True) for of in workloads]
    alone = [sum(p.cost for p in make_plans(of, "individual", options)) for of in workloads]
    assert mean(each.variables for each in shared) == pytest.approx(1717, rel=0.01)
    ratio = mean(one.cost / other for one, other in zip(shared, alone, strict=True))
    assert ratio == pytest.approx(0.54, abs=0.01)


def test_without_replicas_a_third_of_that_is_saved_at_least() -> None:
    of = drawn_workload(PAPERS_SCHEMA, 100, 3, Random(1))
    alone = sum(each.cost for each in make_plans(of, "individual", STREAMS_ONLY))
    assert plan(of, materialise=False).cost < 2 / 3 * alone


@pytest.mark.parametrize("mode", MODES)
def test_no_mode_costs_less_than_the_shared_one(mode: Mode) -> None:
    options = PlanOptions(replicas=True)
    others = sum(each.cost for each in make_plans(workload(EXAMPLE_2), mode, options))
    assert plan(EXAMPLE_2, replicas=True).cost <= others


@pytest.mark.parametrize("found", ["nothing", "worse"])
def test_at_its_limit_the_greedy_choice_is_taken(
    found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = build_problem(workload(EXAMPLE_1), materialise=False, replicas=False)
    unshared = {
        start: min(orders, key=of.costs.__getitem__) for start, orders in of.candidates.items()
    }
    solution = Solution(None if found == "nothing" else unshared, 500.0, 1.0)
    monkeypatch.setattr(planning, "solve", lambda *_: solution)
    taken = plan(EXAMPLE_1, materialise=False)
    assert (taken.is_greedy, taken.cost) == (True, 875)
    assert taken.gap == pytest.approx(1 - 500 / 875)


def test_a_solver_without_time_ends_with_a_valid_choice() -> None:
    of = drawn_workload(PAPERS_SCHEMA, 30, 3, Random(2))
    found = plan(of, materialise=False, limit_s=1e-9)
    assert prune(of.joins, found.choice) == found.choice
    assert _keeps_stores_once(found.choice)
    assert 0 <= found.gap <= 1


def test_too_many_candidates_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problem, "MAX_CANDIDATES", 7)
    with pytest.raises(Invalid, match="candidate probe orders"):
        plan(EXAMPLE_1, materialise=False)


def test_every_stream_of_a_query_is_stored_if_nothing_probes_it() -> None:
    found = plan(EXAMPLE_1)
    assert {"R", "S", "T", "U"} <= {str(layout.join) for layout in found.stores}
