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
    steps = tuple(
        StoreLayout(stream_store(name), Attribute(name, attribute)) for name, attribute in layouts
    )
    return ProbeOrder("R", steps, _JOIN.within(frozenset(["R", *(name for name, _ in layouts)])))


def compile_example(materialise: bool) -> Rules:
    (plan,) = make_plans(workload(EXAMPLE_1), "shared", PlanOptions(materialise=materialise))
    return compile_rules(plan)


def probes(rules: Rules) -> list[Probe]:
    return [rule for edge in rules.by_edge.values() for rule in edge if isinstance(rule, Probe)]


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
    rules = compile_example(materialise=True)
    assert rules.by_edge.keys() == rules.edges.keys()
    all_labels = [label for labels in rules.inputs.values() for label in labels]
    all_labels += [label for probe in probes(rules) for label in probe.out]
    assert sorted(all_labels) == sorted(rules.edges)


def test_tuples_are_kept_before_they_probe() -> None:
    for labels in compile_example(materialise=True).inputs.values():
        kinds = [type(rule) for label in labels for rule in compile_example(True).by_edge[label]]
        assert kinds == sorted(kinds, key=lambda kind: kind is not Store)


def test_a_shared_prefix_is_probed_once_and_copied_to_both_queries() -> None:
    rules = compile_example(materialise=False)
    (shared,) = (probe for probe in probes(rules) if str(probe.order) == "⟨S, T⟩")
    assert {str(rules.edges[label].target) for label in shared.out} == {"R", "U"}
    assert not shared.queries


def test_each_query_gets_results_from_one_order_of_each_of_its_relations() -> None:
    for materialise in (False, True):
        emitting = [
            (query, probe.order.start)
            for probe in probes(compile_example(materialise))
            for query in probe.queries
        ]
        expected = [("q1", name) for name in "RST"] + [("q2", name) for name in "STU"]
        assert sorted(emitting) == expected


def test_a_probed_store_is_filled_from_each_of_its_relations() -> None:
    rules = compile_example(materialise=True)
    filling = {
        probe.order.start
        for probe in probes(rules)
        for label in probe.out
        if isinstance(rules.by_edge[label][0], Store)
    }
    assert filling == {"S", "T"}


def test_attributes_of_all_predicates_are_compared() -> None:
    for probe in probes(compile_example(materialise=True)):
        target = probe.order.steps[-1].join.relations
        source = probe.order.join.relations - target
        assert {mine.relation for mine, _ in probe.matches} <= source
        assert {theirs.relation for _, theirs in probe.matches} <= target


def test_the_same_results_along_another_prefix_are_not_emitted_again() -> None:
    queries = {"R": "a", "S": "a", "T": "ad"}, {"R": "a", "S": "a", "T": "ad", "U": "d"}
    two_queries = workload(document(*queries))
    (plan,) = make_plans(two_queries, "greedy", PlanOptions(materialise=False))
    candidates = build_problem(two_queries, materialise=False, replicas=False).candidates
    by_name = {str(candidate): candidate for orders in candidates.values() for candidate in orders}
    q1, q2 = two_queries.joins
    orders_of_r = {(q1, "R"): by_name["⟨R, S, T⟩"], (q2, "R"): by_name["⟨R, T, S, U⟩"]}
    rules = compile_rules(replace(plan, choice={**plan.choice, **orders_of_r}))
    emitting = [
        probe.order for probe in probes(rules) if probe.order.start == "R" and probe.queries
    ]
    assert sorted(map(str, emitting)) == ["⟨R, S, T⟩", "⟨R, T, S, U⟩"]
