"""Probe trees, and the rules of stores for a tuple by the edge on which it arrives.

The probe orders of a relation share their prefixes and thus form a tree. Every edge has its own
label, which alone determines what its target does, whoever sent the tuple.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from mediator.standing.model import Attribute, Join, stream_store
from mediator.standing.planning import Plan
from mediator.standing.probe_orders import ProbeOrder, StoreLayout

__all__ = ["Edge", "Probe", "Rule", "Rules", "Store", "compile_rules", "probe_trees"]


@dataclass(frozen=True, slots=True)
class Store:
    """Keep the tuple."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Find the partners of the tuple, and forward the joined tuples.

    Attributes:
        order: The prefix that ends here.
        matches: Pairs of equal attributes, of the tuple and of its partners.
        out: Labels of the edges on which results are sent.
        queries: Queries that the results belong to.
    """

    order: ProbeOrder
    matches: tuple[tuple[Attribute, Attribute], ...]
    out: tuple[int, ...]
    queries: tuple[str, ...]


Rule: TypeAlias = Store | Probe


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge from a relation or a store to a store."""

    label: int
    source: str
    target: StoreLayout


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules that workers execute.

    Attributes:
        edges: By label.
        by_edge: Rules of the target, by label.
        inputs: The edges on which tuples of a relation are sent when they arrive.
        stores: Each store with its layouts.
    """

    edges: Mapping[int, Edge]
    by_edge: Mapping[int, tuple[Rule, ...]]
    inputs: Mapping[str, tuple[int, ...]]
    stores: Mapping[Join, tuple[StoreLayout, ...]]


def probe_trees(orders: Iterable[ProbeOrder]) -> dict[str, list[ProbeOrder]]:
    """Merge orders into trees by their prefixes: the steps per relation, shorter ones first."""
    trees: defaultdict[str, dict[ProbeOrder, None]] = defaultdict(dict)
    for order in orders:
        trees[order.start].update(dict.fromkeys(order.prefixes))
    by_length = {start: sorted(tree, key=lambda at: len(at.steps)) for start, tree in trees.items()}
    return dict(sorted(by_length.items()))


def compile_rules(plan: Plan) -> Rules:
    """Compile a plan into edges and rules."""
    return _Compiler(plan).compile()


class _Compiler:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._edges: dict[int, Edge] = {}
        self._rules: dict[int, tuple[Rule, ...]] = {}
        self._stores: defaultdict[Join, list[StoreLayout]] = defaultdict(list)
        for layout in plan.stores:
            self._stores[layout.join].append(layout)

    def compile(self) -> Rules:
        trees = probe_trees(self._plan.choice.values())
        inputs = {name: self._compile_tree(name, tree) for name, tree in trees.items()}
        stores = {join: tuple(layouts) for join, layouts in self._stores.items()}
        return Rules(self._edges, self._rules, inputs, stores)

    def _compile_tree(self, relation: str, tree: list[ProbeOrder]) -> tuple[int, ...]:
        # A tuple is stored before it probes, so that the stores it fills find it.
        store_labels = self._store_edges(relation, stream_store(relation))
        labels = {step: self._edge(str(_source(step)), step.steps[-1]) for step in tree}
        children: defaultdict[ProbeOrder, list[int]] = defaultdict(list)
        for step, label in labels.items():
            children[step.before].append(label)
        for step, label in labels.items():
            self._rules[label] = (self._probe(step, children[step]),)
        root = ProbeOrder(relation, (), stream_store(relation))
        return (*store_labels, *children[root])

    def _probe(self, step: ProbeOrder, children: list[int]) -> Probe:
        join, target = step.join, step.steps[-1].join
        covered = join.relations - target.relations
        matches = tuple(sorted(join.across(covered)))
        out, queries = list(children), []
        # Another prefix may make the same results: only the chosen one emits them.
        if self._plan.choice.get((join, step.start)) == step:
            queries = [name for name, query in self._plan.workload.queries.items() if query == join]
            if join in self._stores:
                out = self._store_edges(str(step.steps[-1]), join) + out
        return Probe(step, matches, tuple(out), tuple(queries))

    def _store_edges(self, source: str, join: Join) -> list[int]:
        labels = []
        for layout in self._stores[join]:
            label = self._edge(source, layout)
            self._rules[label] = (Store(),)
            labels.append(label)
        return labels

    def _edge(self, source: str, target: StoreLayout) -> int:
        label = len(self._edges) + 1
        self._edges[label] = Edge(label, source, target)
        return label


def _source(step: ProbeOrder) -> StoreLayout | str:
    return step.steps[-2] if len(step.steps) > 1 else step.start
