"""Advice: placements of a schema on given systems, as a pure function of a document.

It needs neither a database nor a registered system, and names the single system that fits best: the
purpose of the advisory mode (docs/papers/ppm.md, operating modes).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, TypeAlias, TypeVar

from pydantic import AfterValidator, Field, TypeAdapter

from mediator.base.errors import Location, SchemaInvalid, Unplaceable
from mediator.base.offload import throttled
from mediator.placement.candidates import Candidate
from mediator.placement.decide import Decision, Placement, decide, named_mistakes
from mediator.placement.rank import NodeRank
from mediator.placement.required import RequiredSystems
from mediator.placement.scores import Scores, node_scores
from mediator.schema.annotations import Capability, Metric
from mediator.schema.errors import invalid, locations_below
from mediator.schema.parse import parse_schema
from mediator.schema.tree import Schema
from mediator.schema.validation import (
    Number,
    Omissible,
    Unread,
    document,
    parse_document,
    refuse,
)

__all__ = [
    "ADVICE",
    "Figures",
    "Latencies",
    "OfSystems",
    "advise",
    "notes_on",
    "placements_of",
]

_MAX_SYSTEMS: Final = 64

_T = TypeVar("_T")


def _check_ratios(figures: Mapping[Metric, float]) -> Mapping[Metric, float]:
    invalid_names = (name for name, value in figures.items() if name.is_ratio and value > 1)
    refuse(Location(f"/{name}", "must be at most 1") for name in invalid_names)
    return figures


def _check_latencies(figures: Mapping[Metric, float]) -> Mapping[Metric, float]:
    invalid_names = (name for name in figures if not name.small_is_good)
    refuse(Location(f"/{name}", "is no latency") for name in invalid_names)
    return figures


Figures: TypeAlias = Annotated[
    Mapping[Metric, Annotated[Number, Field(ge=0)]], AfterValidator(_check_ratios)
]
Latencies: TypeAlias = Annotated[Figures, AfterValidator(_check_latencies)]
_SystemName: TypeAlias = Annotated[str, Field(pattern="^[A-Za-z][A-Za-z0-9_-]{0,62}$")]
OfSystems = Annotated[Mapping[_SystemName, _T], Field(max_length=_MAX_SYSTEMS)]


@document
@dataclass(frozen=True, slots=True)
class _System:
    capabilities: Annotated[tuple[Capability, ...], Field(max_length=64)] = ()
    metrics: Figures = field(default_factory=dict)
    p99: Latencies = field(default_factory=dict)


@document
@dataclass(frozen=True, slots=True)
class _Advice:
    schema: Unread[Any] = None
    systems: Omissible[OfSystems[_System]] = None


ADVICE: Final = TypeAdapter(_Advice)
"""The model of the input of `advise`."""


def advise(request: Any, registered: Sequence[Candidate] = ()) -> dict[str, Any]:
    """Return advice for ``{"schema": ..., "systems": {name: {"capabilities", "metrics"}}}``.

    A system can also have ``p99``: percentiles of latencies in seconds. Without systems, the advice
    is for the registered ones, in the order of their registration.

    Raises:
        SchemaInvalid: The schema is wrong, with the JSON pointer of every mistake.
        Invalid: The systems are wrong, likewise.
        Unplaceable: No system can serve a node.
    """
    advice = parse_document(ADVICE, request)
    described = [
        Candidate(name, frozenset(system.capabilities), system.metrics, system.p99)
        for name, system in (advice.systems or {}).items()
    ]
    candidates = registered if advice.systems is None else described
    try:
        schema = parse_schema("advice", advice.schema)
        if mistakes := named_mistakes(schema, candidates):
            raise invalid(mistakes, SchemaInvalid)
    except SchemaInvalid as invalid_schema:
        raise invalid(locations_below("/schema", invalid_schema), SchemaInvalid) from None
    if not candidates:
        raise invalid([Location("/systems", "must name at least one system")])
    try:
        decision = decide(schema, candidates)
    except Unplaceable as error:
        error.locations = tuple(locations_below("/schema", error))
        raise
    ranks = list(decision.ranking.walk())
    return {
        "placements": placements_of(decision),
        "scores": {rank.node: dict(rank.scores) for rank in ranks},
        "dropped": {rank.node: dict(rank.dropped) for rank in ranks},
        "groups": {
            class_name: {name: placed._asdict() for name, placed in groups.items()}
            for class_name, groups in decision.groups.items()
        },
        "best_single_system": _best_single(schema, decision),
        "notes": notes_on(schema, decision),
    }


def placements_of(decision: Decision) -> dict[str, dict[str, Any]]:
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


def notes_on(schema: Schema, decision: Decision) -> list[str]:
    """Return notes on permitted but notable features (docs/placement.md, "RANK")."""
    mixed = [
        f"{rank.node} mixes goals, whose index is unbounded, with utilities, which are at most 1:"
        " the goals may drown the utilities."
        for rank in throttled(decision.ranking.walk())
        if len({requirement.goal is None for requirement in rank.requirements}) > 1
    ]
    ranks = {rank.node: rank for rank in decision.ranking.walk()}
    costs = [
        f"{required}{cost}."
        for node, placed in throttled(decision.placements.items())
        if (required := placed.choice.required) and required.node == node
        if (cost := decision.sentences.cost(_scores(placed, ranks[node]), required))
    ]
    unknown = [
        f"{candidate.name} has no metrics yet: it is no candidate where anything is measured."
        for candidate in decision.candidates
        if not candidate.metrics
    ]
    return [*mixed, *costs, *unknown, *_notes_on_updates(schema, decision)]


def _notes_on_updates(schema: Schema, decision: Decision) -> Iterator[str]:
    """Yield notes on `updated` fields that turn all writes of a class into joint ones."""
    for name, groups in decision.groups.items():
        fields = schema.classes[name].fields
        placements = throttled(groups.values())
        systems = {field: placed.system for placed in placements for field in placed.fields}
        updated = next((field for field in systems if fields[field].updated), None)
        if updated is not None and len(set(systems.values())) > 1:
            yield (
                f"{name}.{updated} changes with every write, and is on {systems[updated]}: a write"
                " to fields on another system is one over both."
            )


def _scores(placed: Placement, rank: NodeRank) -> Scores:
    return placed.choice.scores or node_scores(rank)


def _best_single(schema: Schema, decision: Decision) -> dict[str, Any]:
    ranking, scores = decision.ranking, node_scores(decision.ranking)
    if not ranking.eligible:
        names = [candidate.name for candidate in decision.candidates]
        lacks = "; ".join(f"{name} {ranking.obstacle(name)}" for name in names)
        return {"system": None, "why": f"no system serves everything: {lacks}"}
    choice = decision.order.choose(ranking.node, ranking.eligible, scores)
    try:
        choice = choice.restricted(RequiredSystems(schema).of_everything(), ranking.obstacle)
    except Unplaceable as error:
        reasons = "; ".join(location.detail for location in error.locations)
        return {"system": None, "why": f"no system serves everything: {reasons}"}
    return {"system": choice.system, "why": decision.sentences.of(choice)}
