"""Explanations: candidates, metrics, utilities, scores, margins and thresholds (guarantee 7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mediator.base.errors import NotFound
from mediator.placement.candidates import Candidate
from mediator.placement.decide import Decision
from mediator.placement.rank import NodeRank
from mediator.placement.scores import Ballot, Choice
from mediator.placement.thresholds import Threshold, thresholds
from mediator.placement.utility import FieldScore, Part, advantage

__all__ = ["explain"]


def explain(decision: Decision, node: str) -> dict[str, Any]:
    """Explain where a node is placed and why.

    Args:
        decision: The placements.
        node: ``*`` for the database, ``articles`` for a class, ``articles.hits`` for a field.

    Raises:
        NotFound: There is no such node.
    """
    ranks = {rank.node: rank for rank in decision.ranking.walk()}
    if node not in ranks:
        raise NotFound(f"There is no node {node}.")
    placement, rank = decision.placements[node], ranks[node]
    choice = placement.choice
    return {
        "node": node,
        "system": placement.system,
        "bound": placement.bound,
        "score": placement.score,
        "kind": choice.kind,
        "by": choice.by,
        "requires": sorted(rank.requires),
        "why": decision.why(node),
        "candidates": {c.name: _candidate(c, rank) for c in decision.candidates},
        "dropped": dict(rank.dropped),
        "ballot": dict(choice.ballot.scores) if choice.ballot else {},
        "margin": _margin(choice.ballot, choice.eligible) if choice.ballot else None,
        "thresholds": [_threshold(t) for t in _thresholds(decision, choice, ranks)],
    }


def _candidate(candidate: Candidate, rank: NodeRank) -> dict[str, Any]:
    score = rank.parts.get(candidate.name)
    return {
        "capabilities": sorted(candidate.capabilities),
        "metrics": {str(metric): value for metric, value in candidate.metrics.items()},
        "p99": {str(metric): value for metric, value in candidate.p99.items()},
        "score": rank.scores.get(candidate.name),
        "parts": _parts(score) if score else [],
        "dropped": rank.dropped.get(candidate.name),
    }


def _parts(score: FieldScore) -> list[dict[str, Any]]:
    return [_part(part) for part in score.parts]


def _part(part: Part) -> dict[str, Any]:
    return {
        "metric": str(part.metric),
        "statistic": part.requirement.statistic,
        "measured": part.measured,
        "by": "goal" if part.requirement.utility is None else "utility",
        "goal": part.requirement.goal,
        "f": part.f,
        "weight": part.weight,
    }


def _margin(ballot: Ballot, order: Sequence[str]) -> dict[str, Any] | None:
    first, *others = ballot.ranked(order)
    if not others:
        return None
    score, other = ballot.scores[first], ballot.scores[others[0]]
    return {
        "runner_up": others[0],
        "difference": score - other,
        "ratio": advantage(score, other),
    }


def _thresholds(decision: Decision, choice: Choice, ranks: dict[str, NodeRank]) -> list[Threshold]:
    if choice.ballot is None:
        return []
    asked = {name: ranks[name].requirements for name in choice.ballot.voters}
    return thresholds(choice.ballot, asked, decision.candidates, choice.eligible)


def _threshold(threshold: Threshold) -> dict[str, Any]:
    return {
        "system": threshold.system,
        "metric": str(threshold.metric),
        "statistic": threshold.statistic,
        "measured": threshold.measured,
        "below": threshold.below,
        "above": threshold.above,
    }
