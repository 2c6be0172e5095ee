"""What if: the placements that other weights, goals or metrics would lead to; nothing is changed.

The rules are those of `decide`, on a schema document and candidates that were amended: there is no
second copy of them, so what is shown here is what would be decided (docs/papers/wattdb_viz.md: the
decision is made for real, its commands are not sent).
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
    """What is supposed to be otherwise: weights and goals, by the JSON pointer of an annotation.

    And metrics (seconds, operations/s, ratios) and 99th percentiles of systems, by their names.
    """

    annotations: Annotated[Mapping[str, _Amendment], Field(max_length=1_000)] = field(
        default_factory=dict
    )
    metrics: OfSystems[Figures] = field(default_factory=dict)
    p99: OfSystems[Latencies] = field(default_factory=dict)


SUPPOSITION: Final = TypeAdapter(_Supposition)
"""The model of what `what_if` reads."""


def what_if(
    schema: Schema,
    candidates: Sequence[Candidate],
    supposition: Any,
    overrides: Overrides = NO_OVERRIDES,
) -> dict[str, Any]:
    """Say where the scores would place a schema now, and where if something were otherwise.

    What holds data already is left out of account on both sides: only scores are compared.
    `candidates` are in the order of their registration. `supposition` is parsed JSON:
    ``{"annotations": {pointer: {"weight", "goal"}}, "metrics": {system: {…}}, "p99": {system:
    {…}}}``.

    Raises:
        Invalid: It has mistakes, or names an annotation or a system that is not there.
        SchemaInvalid: A weight or goal is not allowed there.
        Unplaceable: No system would be left for a node.
    """
    supposed = parse_document(SUPPOSITION, supposition)
    _check_names(candidates, supposed)
    amended = _amended(schema, supposed.annotations)
    others = [_supposing(candidate, supposed) for candidate in candidates]
    before = decide(schema, candidates, overrides=overrides)
    after = decide(amended, others, overrides=overrides)
    nodes = {
        node: {"before": _side(node, before), "after": _side(node, after)}
        for node in before.placements
    }
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


def _check_names(candidates: Sequence[Candidate], supposed: _Supposition) -> None:
    known = {candidate.name for candidate in candidates}
    locations = [
        Location(f"/{member}/{name}", f"there is no such system{did_you_mean(name, known)}")
        for member, systems in (("metrics", supposed.metrics), ("p99", supposed.p99))
        for name in systems
        if name not in known
    ]
    if locations:
        raise Invalid("There is no such system.", locations=locations)


def _amended(schema: Schema, annotations: Mapping[str, _Amendment]) -> Schema:
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


def _supposing(candidate: Candidate, supposed: _Supposition) -> Candidate:
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
