"""What if: the placements that other weights, goals or metrics would lead to; nothing is changed.

The rules are those of `decide`, on a schema document and candidates that were amended: there is no
second copy of them, so what is shown here is what would be decided (docs/papers/wattdb_viz.md: the
decision is made for real, its commands are not sent).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from mediator.base.errors import Invalid, Location
from mediator.placement.advice import SYSTEM_NAME, SYSTEMS_AT_MOST, read_metrics
from mediator.placement.candidates import Candidate
from mediator.placement.decide import Decision, decide
from mediator.schema.annotations import Metric
from mediator.schema.errors import invalid
from mediator.schema.json_node import POSITIVE, Node
from mediator.schema.parse import parse_schema
from mediator.schema.render import schema_document
from mediator.schema.tree import Schema

__all__ = ["Supposition", "read_supposition", "what_if"]

_AMENDED_AT_MOST: Final = 1_000
_LATENCIES: Final = tuple(metric for metric in Metric if metric.small_is_good)


@dataclass(frozen=True, slots=True)
class Supposition:
    """What is supposed to be otherwise.

    Attributes:
        annotations: Weights and goals, by the JSON pointer of an annotation in the schema.
        metrics: Metrics of systems, by name; seconds, operations/s, ratios.
        p99: 99th percentiles of latencies, likewise.
    """

    annotations: Mapping[str, Mapping[str, float]]
    metrics: Mapping[str, Mapping[Metric, float]]
    p99: Mapping[str, Mapping[Metric, float]]


def read_supposition(document: Any) -> Supposition:
    """Read ``{"annotations": {pointer: {"weight", "goal"}}, "metrics", "p99": {system: {…}}}``.

    Raises:
        Invalid: With the JSON pointer of every mistake.
    """
    mistakes: list[Location] = []
    node = Node(document, "", mistakes).shape("annotations", "metrics", "p99")
    supposed = Supposition(
        _annotations(node["annotations"]),
        _of_systems(node["metrics"], tuple(Metric)),
        _of_systems(node["p99"], _LATENCIES),
    )
    if mistakes:
        raise invalid(mistakes, Invalid)
    return supposed


def what_if(
    schema: Schema, candidates: Sequence[Candidate], supposed: Supposition
) -> dict[str, Any]:
    """Say where the scores would place a schema now, and where if something were otherwise.

    What holds data already is left out of account on both sides: only scores are compared.

    Args:
        schema: The schema as it is.
        candidates: The systems in the order of their registration.
        supposed: What is supposed to be otherwise.

    Raises:
        Invalid: It names an annotation or a system that is not there.
        SchemaInvalid: A weight or goal is not allowed there.
        Unplaceable: No system would be left for a node.
    """
    _check_names(candidates, supposed)
    amended = _amended(schema, supposed.annotations)
    before = decide(schema, candidates)
    after = decide(amended, [_supposing(candidate, supposed) for candidate in candidates])
    nodes = {node: _compared(node, before, after) for node in before.placements}
    moves = [
        {
            "node": node,
            "from": both["before"]["system"],
            "to": both["after"]["system"],
            "why": both["after"]["why"],
        }
        for node, both in nodes.items()
        if both["before"]["system"] != both["after"]["system"]
    ]
    return {"nodes": nodes, "moves": moves}


def _annotations(node: Node) -> dict[str, dict[str, float]]:
    if not node.given:
        return {}
    if not isinstance(node.value, dict) or len(node.value) > _AMENDED_AT_MOST:
        node.error(f"must be an object of at most {_AMENDED_AT_MOST} members")
        return {}
    return {pointer: _amendment(node[pointer]) for pointer in node.value}


def _amendment(node: Node) -> dict[str, float]:
    node.shape("weight", "goal")
    if not isinstance(node.value, dict):
        return {}
    given = [name for name in ("weight", "goal") if node[name].given]
    return {name: node[name].number(least=POSITIVE) for name in given}


def _of_systems(node: Node, known: Sequence[Metric]) -> dict[str, dict[Metric, float]]:
    members = node.members(SYSTEMS_AT_MOST, SYSTEM_NAME)
    return {name: read_metrics(member, known) for name, member in members}


def _check_names(candidates: Sequence[Candidate], supposed: Supposition) -> None:
    known = {candidate.name for candidate in candidates}
    locations = [
        Location(f"/{member}/{name}", "there is no such system")
        for member, systems in (("metrics", supposed.metrics), ("p99", supposed.p99))
        for name in systems
        if name not in known
    ]
    if locations:
        raise Invalid("There is no such system.", locations=locations)


def _amended(schema: Schema, annotations: Mapping[str, Mapping[str, float]]) -> Schema:
    if not annotations:
        return schema
    document = schema_document(schema)
    for pointer, amendment in annotations.items():
        _annotation(document, pointer).update(amendment)
    return parse_schema(schema.database, document)


def _annotation(document: dict[str, Any], pointer: str) -> dict[str, Any]:
    """Find a continuous requirement by its JSON pointer (RFC 6901); names here need no escapes."""
    found: Any = document
    for token in pointer.split("/")[1:]:
        if isinstance(found, list):
            found = found[int(token)] if token in map(str, range(len(found))) else None
        else:
            found = found.get(token) if isinstance(found, dict) else None
    if not isinstance(found, dict) or "metric" not in found:
        location = Location("/annotations", f"{pointer[:200]} is no annotation with a metric")
        raise Invalid("There is no such annotation.", locations=[location])
    return found


def _supposing(candidate: Candidate, supposed: Supposition) -> Candidate:
    metrics = {**candidate.metrics, **supposed.metrics.get(candidate.name, {})}
    p99 = {**candidate.p99, **supposed.p99.get(candidate.name, {})}
    return replace(candidate, metrics=metrics, p99=p99)


def _compared(node: str, before: Decision, after: Decision) -> dict[str, Any]:
    return {"before": _side(node, before), "after": _side(node, after)}


def _side(node: str, decision: Decision) -> dict[str, Any]:
    placed = decision.placements[node]
    scores = placed.choice.scores.by_system if placed.choice.scores else {}
    return {
        "system": placed.system,
        "scores": dict(scores),
        "kind": placed.choice.kind,
        "why": decision.why(node),
    }
