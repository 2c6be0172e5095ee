"""Explanations: candidates, metrics, utilities, scores, margins and thresholds (guarantee 7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mediator.errors import NotFound
from mediator.placement.ballot import Ballot, Choice, Kind
from mediator.placement.candidates import Candidate
from mediator.placement.decide import Decision
from mediator.placement.rank import NodeRank
from mediator.placement.thresholds import Threshold, thresholds
from mediator.placement.utility import INDEX_CAP, FieldScore, Part
from mediator.schema.annotations import Capability

__all__ = ["advantage", "explain", "sentence"]

_BECAUSE: dict[Kind, str] = {
    "bound": "{by} is tied to one system",
    "own": "chosen by the scores of {by}",
    "group": "shares its place with its cache group, chosen by the mean over {by}",
    "follows": "follows the choice for {by}",
    "default": "nothing votes on it: the default system",
    "pinned": "{system} holds its data",
}


def advantage(score: float, other: float | None) -> float:
    """Return by what ratio a score exceeds another, 0.2 for 20 %; at most `INDEX_CAP`."""
    if other is None or other <= 0:
        return INDEX_CAP if score > 0 or other is None else 0.0
    return min(INDEX_CAP, score / other - 1)


def sentence(choice: Choice, required: Sequence[Capability] = ()) -> str:
    """Say in one sentence why a choice is as it is.

    Args:
        choice: The choice.
        required: What the node that decided requires, for one that is tied to a system.
    """
    where = "the database" if choice.by == "*" else choice.by
    because = _BECAUSE[choice.kind].format(by=where, system=choice.system)
    if choice.kind == "bound" and required:
        because += f", as it requires {', '.join(sorted(required))}"
    if choice.ballot is None:
        return because
    first, *others = _by_score(choice.ballot)
    told = f"{because}: {_scored(choice.ballot, first)} is highest"
    return f"{told}, before {_scored(choice.ballot, others[0])}" if others else f"{told} and alone"


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
        "why": sentence(choice, ranks[choice.by].requires if choice.by in ranks else ()),
        "candidates": {c.name: _candidate(c, rank) for c in decision.candidates},
        "dropped": dict(rank.dropped),
        "ballot": dict(choice.ballot.scores) if choice.ballot else {},
        "margin": _margin(choice.ballot) if choice.ballot else None,
        "thresholds": [_threshold(t) for t in _thresholds(decision, choice, ranks)],
    }


def _by_score(ballot: Ballot) -> list[str]:
    return sorted(ballot.scores, key=lambda name: -ballot.scores[name])


def _scored(ballot: Ballot, system: str) -> str:
    return f"{system} with {ballot.scores[system]:.4g}"


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


def _margin(ballot: Ballot) -> dict[str, Any] | None:
    first, *others = _by_score(ballot)
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
    return thresholds(choice.ballot, asked, decision.candidates, decision.order)


def _threshold(threshold: Threshold) -> dict[str, Any]:
    return {
        "system": threshold.system,
        "metric": str(threshold.metric),
        "statistic": threshold.statistic,
        "measured": threshold.measured,
        "below": threshold.below,
        "above": threshold.above,
    }
