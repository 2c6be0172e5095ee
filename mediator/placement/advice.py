"""Advice: where a schema's parts would be placed on given systems; a pure function of a document.

It needs neither a database nor a registered system, and says which single system fits best, which
is what the advisory mode is for (docs/papers/ppm.md, operating modes).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from mediator.base.errors import Invalid, Location, SchemaInvalid
from mediator.base.offload import throttled
from mediator.placement.candidates import Candidate
from mediator.placement.decide import Decision, decide, named_mistakes
from mediator.placement.scores import node_scores
from mediator.schema.annotations import Capability, Metric
from mediator.schema.errors import invalid
from mediator.schema.json_node import Node
from mediator.schema.parse import parse_schema
from mediator.schema.tree import Schema

__all__ = [
    "SYSTEMS_AT_MOST",
    "SYSTEM_NAME",
    "advice_for",
    "advise",
    "notes_on",
    "placements_of",
    "read_metrics",
]

SYSTEMS_AT_MOST: Final = 64

SYSTEM_NAME: Final = re.compile("[A-Za-z][A-Za-z0-9_-]{0,62}")
_RATIOS = (Metric.READ_AVAILABILITY, Metric.WRITE_AVAILABILITY)
_LATENCIES = tuple(metric for metric in Metric if metric.small_is_good)


def advise(document: Any) -> dict[str, Any]:
    """Answer advice for ``{"schema": ..., "systems": {name: {"capabilities", "metrics"}}}``.

    A system may also have ``p99``: percentiles of latencies in seconds.

    Raises:
        SchemaInvalid: The schema is wrong, with the JSON pointer of every mistake.
        Invalid: The systems are wrong, likewise.
        Unplaceable: No system can serve a node.
    """
    mistakes: list[Location] = []
    node = Node(document, "", mistakes).shape(required=("schema", "systems"))
    candidates = _candidates(node["systems"])
    schema = _schema(node["schema"])
    for mistake in named_mistakes(schema, candidates) if schema else ():
        Node(None, f"/schema{mistake.pointer}", mistakes).error(mistake.detail)
    if mistakes:
        in_schema = any(each.pointer.startswith("/schema") for each in mistakes)
        raise invalid(mistakes, SchemaInvalid if in_schema else Invalid)
    assert schema is not None, "a schema that is missing is a mistake"
    return advice_for(schema, candidates)


def advice_for(schema: Schema, candidates: Sequence[Candidate]) -> dict[str, Any]:
    """Answer advice for a schema and systems in the order of their registration.

    Raises:
        Unplaceable: No system can serve a node.
    """
    decision = decide(schema, candidates)
    ranks = list(decision.ranking.walk())
    return {
        "placements": placements_of(decision),
        "scores": {rank.node: dict(rank.scores) for rank in ranks},
        "dropped": {rank.node: dict(rank.dropped) for rank in ranks},
        "groups": {
            class_name: {name: placed._asdict() for name, placed in groups.items()}
            for class_name, groups in decision.groups.items()
        },
        "best_single_system": _best_single(decision),
        "notes": notes_on(decision),
    }


def placements_of(decision: Decision) -> dict[str, dict[str, Any]]:
    """Return the placements as JSON, by node."""
    return {
        node: {
            "system": placed.system,
            "bound": placed.bound,
            "score": placed.score,
            "kind": placed.choice.kind,
            "why": decision.why(node),
        }
        for node, placed in throttled(decision.placements.items())
    }


def notes_on(decision: Decision) -> list[str]:
    """Point out what is allowed but worth knowing (docs/design.md, "Placement")."""
    mixed = [
        f"{rank.node} mixes goals, whose index is unbounded, with utilities, which are at most 1:"
        " the goals may drown the utilities."
        for rank in throttled(decision.ranking.walk())
        if len({requirement.goal is None for requirement in rank.requirements}) > 1
    ]
    unknown = [
        f"{candidate.name} has no metrics yet: it is no candidate where anything is measured."
        for candidate in decision.candidates
        if not candidate.metrics
    ]
    return mixed + unknown


def _best_single(decision: Decision) -> dict[str, Any]:
    ranking, scores = decision.ranking, node_scores(decision.ranking)
    if not ranking.eligible:
        names = [candidate.name for candidate in decision.candidates]
        lacks = "; ".join(f"{name} {ranking.obstacle(name)}" for name in names)
        return {"system": None, "why": f"no system serves everything: {lacks}"}
    choice = decision.order.choose(ranking.node, ranking.eligible, scores)
    return {"system": choice.system, "why": decision.sentences.of(choice)}


def _schema(node: Node) -> Schema | None:
    if not node.given:
        return None
    try:
        return parse_schema("advice", node.value)
    except SchemaInvalid as wrong:
        for location in wrong.locations:
            Node(None, node.pointer + location.pointer, node.errors).error(location.detail)
        return None


def _candidates(node: Node) -> list[Candidate]:
    members = list(node.members(SYSTEMS_AT_MOST, SYSTEM_NAME))
    if node.value == {}:
        node.error("must name at least one system")
    return [_candidate(name, member) for name, member in members]


def _candidate(name: str, node: Node) -> Candidate:
    node.shape("capabilities", "metrics", "p99")
    capabilities = (each.choice(Capability) for each in node["capabilities"].elements(64))
    return Candidate(
        name,
        frozenset(capability for capability in capabilities if capability),
        read_metrics(node["metrics"], tuple(Metric)),
        read_metrics(node["p99"], _LATENCIES),
    )


def read_metrics(node: Node, known: Sequence[Metric]) -> dict[Metric, float]:
    """Read metrics by their names; what is not known is noted as a mistake."""
    if not node.given:
        return {}
    node.shape(*known)
    return {
        metric: node[metric].number(least=0.0, most=1.0 if metric in _RATIOS else float("inf"))
        for metric in known
        if node[metric].given
    }
