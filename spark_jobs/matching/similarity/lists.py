"""The users' decisions: pairs that must be linked, and pairs that cannot be."""

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
        link: The name of its group of linked objects: the group's least id on the left.
        cannot: Ids of the other side that it is not linked with.
        ignored: The number of pairs with a missing object.
    """

    link: dict[Node, str]
    cannot: dict[Node, frozenset[str]]
    ignored: int


def decisions(must: Iterable[Pair], cannot: Iterable[Pair], present: set[Node]) -> Decisions:
    """Join pairs that must be linked into groups; a cycle of pairs is one group.

    Raises:
        InputUnfit: A pair within a group cannot be linked.
    """
    required, forbidden = {*must}, {*cannot}
    existing = {pair for pair in required | forbidden if {(0, pair[0]), (1, pair[1])} <= present}
    link = _groups(required & existing)
    by_object: defaultdict[Node, set[str]] = defaultdict(set)
    for left, right in sorted(forbidden & existing):
        group = link.get((0, left))
        if group is not None and group == link.get((1, right)):
            raise InputUnfit(
                "The lists contradict each other:"
                f" {left} and {right} must be linked, and cannot be linked."
            )
        by_object[0, left].add(right)
        by_object[1, right].add(left)
    forbidden_ids = {node: frozenset(ids) for node, ids in by_object.items()}
    return Decisions(link, forbidden_ids, len(required | forbidden) - len(existing))


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
