"""Probe trees and rules."""

from __future__ import annotations

from dataclasses import replace

from mediator.standing.model import Attribute, Join, stream_store
from mediator.standing.planning import PlanOptions, make_plans
from mediator.standing.probe_orders import ProbeOrder, StoreLayout
from mediator.standing.problem import build_problem
from mediator.standing.rules import Probe, Rules, Store, compile_rules, probe_trees
from tests.unit.standing.papers_queries import EXAMPLE_1, document, workload

_JOIN = Join(
    frozenset("RSTUW"),
    frozenset(
        frozenset([Attribute(one, name), Attribute(other, name)])
        for one, other, name in map(tuple, ["RSd", "STb", "SWe", "RUa"])
    ),
    1.0,
)


def order(*layouts: tuple[str, str]) -> ProbeOrder:
    steps = tuple(StoreLayout(stream_store(name), Attribute(name, at)) for name, at in layouts)
    return ProbeOrder("R", steps, _JOIN.within(frozenset(["R", *(name for name, _ in layouts)])))


def compiled(materialise: bool) -> Rules:
    (plan,) = make_plans(workload(EXAMPLE_1), "shared", PlanOptions(materialise=materialise))
    return compile_rules(plan)


def probes(rules: Rules) -> list[Probe]:
    return [rule for some in rules.by_edge.values() for rule in some if isinstance(rule, Probe)]


def test_three_probe_orders_of_figure_4_are_a_tree_of_four_edges() -> None:
    orders = [
        order(("S", "d"), ("T", "b")),
        order(("S", "d"), ("W", "e")),
        order(("U", "a")),
    ]
    trees = probe_trees(orders)
    assert sorted(map(str, trees["R"])) == [
        "⟨R, S[d], T[b]⟩",
        "⟨R, S[d], W[e]⟩",
        "⟨R, S[d]⟩",
        "⟨R, U[a]⟩",
    ]


def test_every_edge_has_a_label_of_its_own_and_one_rule() -> None:
    rules = compiled(materialise=True)
    assert rules.by_edge.keys() == rules.edges.keys()
    sent = [label for labels in rules.inputs.values() for label in labels]
    sent += [label for probe in probes(rules) for label in probe.out]
    assert sorted(sent) == sorted(rules.edges)


def test_tuples_are_kept_before_they_probe() -> None:
    for labels in compiled(materialise=True).inputs.values():
        kinds = [type(rule) for label in labels for rule in compiled(True).by_edge[label]]
        assert kinds == sorted(kinds, key=lambda kind: kind is not Store)


def test_a_shared_prefix_is_probed_once_and_copied_to_both_queries() -> None:
    rules = compiled(materialise=False)
    (shared,) = (each for each in probes(rules) if str(each.order) == "⟨S, T⟩")
    assert {str(rules.edges[label].target) for label in shared.out} == {"R", "U"}
    assert not shared.queries


def test_each_query_gets_results_from_one_order_of_each_of_its_relations() -> None:
    for materialise in (False, True):
        emitting = [
            (query, probe.order.start)
            for probe in probes(compiled(materialise))
            for query in probe.queries
        ]
        expected = [("q1", name) for name in "RST"] + [("q2", name) for name in "STU"]
        assert sorted(emitting) == expected


def test_what_is_probed_is_filled_from_each_of_its_relations() -> None:
    rules = compiled(materialise=True)
    filling = {
        probe.order.start
        for probe in probes(rules)
        for label in probe.out
        if isinstance(rules.by_edge[label][0], Store)
    }
    assert filling == {"S", "T"}


def test_attributes_of_all_predicates_are_compared() -> None:
    for probe in probes(compiled(materialise=True)):
        target = probe.order.steps[-1].join.relations
        known = probe.order.join.relations - target
        assert {mine.relation for mine, _ in probe.matches} <= known
        assert {theirs.relation for _, theirs in probe.matches} <= target


def test_the_same_results_along_another_prefix_are_not_emitted_again() -> None:
    queries = {"R": "a", "S": "a", "T": "ad"}, {"R": "a", "S": "a", "T": "ad", "U": "d"}
    of = workload(document(*queries))
    (plan,) = make_plans(of, "greedy", PlanOptions(materialise=False))
    candidates = build_problem(of, materialise=False, replicas=False).candidates
    by_name = {str(each): each for orders in candidates.values() for each in orders}
    q1, q2 = of.joins
    picked = {(q1, "R"): by_name["⟨R, S, T⟩"], (q2, "R"): by_name["⟨R, T, S, U⟩"]}
    rules = compile_rules(replace(plan, choice={**plan.choice, **picked}))
    emitting = [each.order for each in probes(rules) if each.order.start == "R" and each.queries]
    assert sorted(map(str, emitting)) == ["⟨R, S, T⟩", "⟨R, T, S, U⟩"]
