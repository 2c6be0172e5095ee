"""Explanations: candidates, metrics, utilities, scores, margins and thresholds (guarantee 7)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from mediator.base.errors import NotFound
from mediator.base.suggestions import did_you_mean
from mediator.placement.candidates import Candidate
from mediator.placement.decide import Decision
from mediator.placement.rank import NodeRank
from mediator.placement.required import RequiredSystem
from mediator.placement.scores import SystemChoice
from mediator.placement.thresholds import Threshold, thresholds
from mediator.placement.utility import Term, advantage

__all__ = ["explain", "summarise"]


def explain(decision: Decision, node: str) -> dict[str, Any]:
    """Explain the placement of a node.

    `node` is ``*`` for the database, ``articles`` for a class, ``articles.hits`` for a field.

    Raises:
        NotFound: There is no such node.
    """
    ranks = {rank.node: rank for rank in decision.ranking.walk()}
    if node not in ranks:
        raise NotFound(f"There is no node {node}{did_you_mean(node, ranks) or '.'}")
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
        "required_system": _required(choice.required) if choice.required else None,
        "why": decision.why(node),
        "candidates": {c.name: _candidate(c, rank) for c in decision.candidates},
        "dropped": dict(rank.dropped),
        "scores": dict(choice.scores.by_system) if choice.scores else {},
        "margin": _margin(choice),
        "thresholds": [asdict(t) for t in _thresholds(decision, choice, ranks)],
    }


def _required(required: RequiredSystem) -> dict[str, Any]:
    override = required.override
    until = {"reason": override.reason, "until": override.until.isoformat()} if override else None
    return {"system": required.system, "node": required.node, "override": until}


def _candidate(candidate: Candidate, rank: NodeRank) -> dict[str, Any]:
    score = rank.terms.get(candidate.name)
    return {
        "capabilities": sorted(candidate.capabilities),
        "metrics": {str(metric): value for metric, value in candidate.metrics.items()},
        "p99": {str(metric): value for metric, value in candidate.p99.items()},
        "score": rank.scores.get(candidate.name),
        "terms": [_term(term) for term in score.terms] if score else [],
        "dropped": rank.dropped.get(candidate.name),
    }


def _term(term: Term) -> dict[str, Any]:
    return {
        "metric": str(term.requirement.metric),
        "statistic": term.requirement.statistic,
        "measured": term.measured,
        "by": "goal" if term.requirement.utility is None else "utility",
        "goal": term.requirement.goal,
        "f": term.f,
        "weight": term.requirement.weight,
    }


def _margin(choice: SystemChoice) -> dict[str, Any] | None:
    if (scores := choice.scores) is None or choice.required:
        return None
    first, *others = scores.ranked(choice.eligible)
    if not others:
        return None
    score, other = scores.by_system[first], scores.by_system[others[0]]
    return {
        "runner_up": others[0],
        "difference": score - other,
        "ratio": advantage(score, other),
    }


def _thresholds(
    decision: Decision, choice: SystemChoice, ranks: dict[str, NodeRank]
) -> list[Threshold]:
    if choice.scores is None or choice.required:
        return []
    requirements = {name: ranks[name].requirements for name in choice.scores.shares}
    return thresholds(choice.scores, requirements, decision.candidates, choice.eligible)


def summarise(decision: Decision) -> dict[str, Any]:
    """Return the systems' metrics, each node with its system, and the cache groups of each class.

    It costs one walk over the schema; `explain` adds details of one node, such as thresholds.
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
