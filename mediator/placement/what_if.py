"""What if: the placements under other weights, goals or metrics; nothing is changed.

`decide` applies its rules to an amended schema document and amended candidates: there is no second
implementation, so the result is what would be decided (docs/papers/wattdb_viz.md: the decision is
made for real, its commands are not sent).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, TypeAlias

from pydantic import Field, TypeAdapter

from mediator.base.errors import Invalid, Location
from mediator.base.suggestions import did_you_mean
from mediator.placement.advice import Figures, Latencies, OfSystems
from mediator.placement.candidates import Candidate
from mediator.placement.decide import NO_OVERRIDES, Decision, decide
from mediator.schema.overrides import Overrides
from mediator.schema.parse import parse_schema
from mediator.schema.render import schema_document
from mediator.schema.tree import Schema
from mediator.schema.validation import Positive, document, parse_document

__all__ = ["SUPPOSITION", "what_if"]

_Amendment: TypeAlias = Mapping[Annotated[str, Field(pattern="^(weight|goal)$")], Positive]


@document
@dataclass(frozen=True, slots=True)
class _Supposition:
    """The supposed differences: weights and goals, by the JSON pointer of an annotation.

    And metrics (seconds, operations/s, ratios) and 99th percentiles of systems, by their names.
    """

    annotations: Annotated[Mapping[str, _Amendment], Field(max_length=1_000)] = field(
        default_factory=dict
    )
    metrics: OfSystems[Figures] = field(default_factory=dict)
    p99: OfSystems[Latencies] = field(default_factory=dict)


SUPPOSITION: Final = TypeAdapter(_Supposition)
"""The model of the input of `what_if`."""


def what_if(
    schema: Schema,
    candidates: Sequence[Candidate],
    supposition: Any,
    overrides: Overrides = NO_OVERRIDES,
) -> dict[str, Any]:
    """Return where the scores place a schema now, and where under a supposition.

    Existing data is ignored on both sides: only scores are compared. `candidates` are in the order
    of their registration. `supposition` is parsed JSON: ``{"annotations": {pointer: {"weight",
    "goal"}}, "metrics": {system: {…}}, "p99": {system: {…}}}``.

    Raises:
        Invalid: It has mistakes, or names an annotation or a system that does not exist.
        SchemaInvalid: A weight or goal is not allowed there.
        Unplaceable: No system would remain for a node.
    """
    supposed = parse_document(SUPPOSITION, supposition)
    _check_names(candidates, supposed)
    supposed_schema = _amend_schema(schema, supposed.annotations)
    supposed_candidates = [_amend_candidate(candidate, supposed) for candidate in candidates]
    before = decide(schema, candidates, overrides=overrides)
    after = decide(supposed_schema, supposed_candidates, overrides=overrides)
    nodes = {
        node: {"before": _side(node, before), "after": _side(node, after)}
        for node in before.placements
    }
    moves = [
        {
            "node": node,
            "from": sides["before"]["system"],
            "to": sides["after"]["system"],
            "why": sides["after"]["why"],
        }
        for node, sides in nodes.items()
        if sides["before"]["system"] != sides["after"]["system"]
    ]
    return {"nodes": nodes, "moves": moves}


def _check_names(candidates: Sequence[Candidate], supposed: _Supposition) -> None:
    names = {candidate.name for candidate in candidates}
    locations = [
        Location(f"/{member}/{name}", f"there is no such system{did_you_mean(name, names)}")
        for member, systems in (("metrics", supposed.metrics), ("p99", supposed.p99))
        for name in systems
        if name not in names
    ]
    if locations:
        raise Invalid("There is no such system.", locations=locations)


def _amend_schema(schema: Schema, annotations: Mapping[str, _Amendment]) -> Schema:
    if not annotations:
        return schema
    document = schema_document(schema)
    for pointer, amendment in annotations.items():
        _annotation(document, pointer).update(amendment)
    return parse_schema(schema.database, document)


def _annotation(document: dict[str, Any], pointer: str) -> dict[str, Any]:
    """Return the requirement at a JSON pointer (RFC 6901); names here need no escapes."""
    node: Any = document
    for token in pointer.split("/")[1:]:
        if isinstance(node, list):
            node = node[int(token)] if token in map(str, range(len(node))) else None
        else:
            node = node.get(token) if isinstance(node, dict) else None
    if not isinstance(node, dict) or "metric" not in node:
        location = Location("/annotations", f"{pointer[:200]} is no annotation with a metric")
        raise Invalid("There is no such annotation.", locations=[location])
    return node


def _amend_candidate(candidate: Candidate, supposed: _Supposition) -> Candidate:
    metrics = {**candidate.metrics, **supposed.metrics.get(candidate.name, {})}
    p99 = {**candidate.p99, **supposed.p99.get(candidate.name, {})}
    return replace(candidate, metrics=metrics, p99=p99)


def _side(node: str, decision: Decision) -> dict[str, Any]:
    placed = decision.placements[node]
    scores = placed.choice.scores.by_system if placed.choice.scores else {}
    return {
        "system": placed.system,
        "scores": dict(scores),
        "kind": placed.choice.kind,
        "why": decision.why(node),
    }
