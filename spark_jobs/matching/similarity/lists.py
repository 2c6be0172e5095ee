"""What people decided: pairs that must be linked, and pairs that cannot be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from spark_jobs.runner.port import InputUnfit

__all__ = ["Decisions", "decisions"]

Pair: TypeAlias = tuple[str, str]
Node: TypeAlias = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Decisions:
    """Decisions for each object: side (0 is left) and id.

    Attributes:
        link: The name of the group it is linked in: the least id on its left.
        cannot: Ids of the other side that it is not linked with.
        ignored: Pairs with an object that there is not.
    """

    link: dict[Node, str]
    cannot: dict[Node, frozenset[str]]
    ignored: int


def decisions(must: Iterable[Pair], cannot: Iterable[Pair], present: set[Node]) -> Decisions:
    """Join pairs that must be linked to groups: a cycle of pairs is one group, as any other.

    Raises:
        InputUnfit: A pair within a group is one that cannot be linked.
    """
    wanted, barred = {*must}, {*cannot}
    there = {pair for pair in wanted | barred if {(0, pair[0]), (1, pair[1])} <= present}
    link = _groups(wanted & there)
    by_object: defaultdict[Node, set[str]] = defaultdict(set)
    for left, right in sorted(barred & there):
        group = link.get((0, left))
        if group is not None and group == link.get((1, right)):
            raise InputUnfit(
                "The lists contradict each other:"
                f" {left} and {right} must be linked, and cannot be linked."
            )
        by_object[0, left].add(right)
        by_object[1, right].add(left)
    cannots = {node: frozenset(ids) for node, ids in by_object.items()}
    return Decisions(link, cannots, len(wanted | barred) - len(there))


def _groups(pairs: set[Pair]) -> dict[Node, str]:
    parent: dict[Node, Node] = {}

    def root(node: Node) -> Node:
        while parent.setdefault(node, node) != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for left, right in sorted(pairs):
        one, other = sorted((root((0, left)), root((1, right))))
        parent[other] = one
    return {node: root(node)[1] for node in [*parent]}
