"""A summary of placements: the system of every node and cache group of a schema."""

from __future__ import annotations

from typing import Any

from mediator.placement.decide import Decision
from mediator.placement.rank import NodeRank

__all__ = ["summarise"]


def summarise(decision: Decision) -> dict[str, Any]:
    """Return the systems' metrics, each node with its system, and the cache groups of each class.

    It costs one walk over the schema; `explain` says more of one node, thresholds included.
    """
    return {
        "candidates": {
            candidate.name: {"metrics": dict(candidate.metrics), "p99": dict(candidate.p99)}
            for candidate in decision.candidates
        },
        "nodes": {rank.node: _node(rank, decision) for rank in decision.ranking.walk()},
        "groups": {
            class_name: {name: placed._asdict() for name, placed in groups.items()}
            for class_name, groups in decision.groups.items()
        },
    }


def _node(rank: NodeRank, decision: Decision) -> dict[str, Any]:
    placed = decision.placements[rank.node]
    return {
        "system": placed.system,
        "bound": placed.bound,
        "kind": placed.choice.kind,
        "why": decision.why(rank.node),
        "requires": sorted(rank.requires),
        "scores": dict(rank.scores),
        "dropped": dict(rank.dropped),
    }
