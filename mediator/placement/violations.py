"""Violations: annotations whose score stays below their threshold (docs/papers/ppm.md).

A pure state machine. An annotation violates once its own score has stayed below `below` for
`for_s`; the violation ends when the score is back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

from mediator.base.observation import ViolationDetected
from mediator.placement.candidates import Candidate
from mediator.placement.utility import fulfilment
from mediator.schema.annotations import ContinuousRequirement, ViolationRule
from mediator.schema.tree import Schema

__all__ = ["ViolationEvent", "ViolationState", "detect_violations"]

_Key: TypeAlias = tuple[str, int, str]
_Phase: TypeAlias = Literal["began", "ended"]


class ViolationEvent(NamedTuple):
    phase: _Phase
    detected: ViolationDetected


@dataclass(frozen=True)
class Spell:
    """Since when an annotation's score has been too low, and whether that was reported."""

    since: float
    reported: bool = False


ViolationState: TypeAlias = Mapping[_Key, Spell]
"""The present spells, by field, index of the annotation, and system."""


@dataclass(frozen=True)
class _Watched:
    node: str
    index: int
    requirement: ContinuousRequirement
    rule: ViolationRule


def detect_violations(
    state: ViolationState,
    schema: Schema,
    placements: Mapping[str, str],
    candidates: Mapping[str, Candidate],
    now: float,
) -> tuple[ViolationState, list[ViolationEvent]]:
    """Evaluate all annotations with a rule; return the next state, and what began or ended.

    `state` is what the last call returned, empty at first. `placements` has the system of each
    field, by node. `now` is in seconds of any clock that does not go back. A metric that is not
    known changes nothing; a field that was moved, or an annotation that was removed, starts again
    without an event.
    """
    spells: dict[_Key, Spell] = {}
    events = []
    for watched in _watched(schema):
        system = placements.get(watched.node, "")
        key = (watched.node, watched.index, system)
        before, candidate = state.get(key), candidates.get(system)
        measured = candidate.measured(watched.requirement) if candidate else None
        spell, phase = _step(watched, before, measured, now)
        if spell:
            spells[key] = spell
        reported = spell or before
        if phase and reported and measured is not None:
            detected = _detected(schema, watched, system, measured, now - reported.since)
            events.append(ViolationEvent(phase, detected))
    return spells, events


def _step(
    watched: _Watched, spell: Spell | None, measured: float | None, now: float
) -> tuple[Spell | None, _Phase | None]:
    if measured is None:
        return spell, None
    if fulfilment(watched.requirement, measured) >= watched.rule.below:
        return None, "ended" if spell and spell.reported else None
    spell = spell or Spell(now)
    if spell.reported or now - spell.since < watched.rule.for_s:
        return spell, None
    return replace(spell, reported=True), "began"


def _watched(schema: Schema) -> Iterator[_Watched]:
    """Yield every annotation with a rule, pushed down to fields."""
    for class_ in schema.classes.values():
        for field_ in class_.fields.values():
            node = f"{class_.name}.{field_.name}"
            pushed = (*schema.annotations, *class_.annotations, *field_.annotations)
            for index, annotation in enumerate(pushed):
                if isinstance(annotation, ContinuousRequirement) and annotation.violation:
                    yield _Watched(node, index, annotation, annotation.violation)


def _detected(
    schema: Schema, watched: _Watched, system: str, measured: float, lasted_s: float
) -> ViolationDetected:
    return ViolationDetected(
        database=schema.database,
        node=watched.node,
        metric=str(watched.requirement.metric),
        system=system,
        measured=measured,
        score=fulfilment(watched.requirement, measured),
        below=watched.rule.below,
        duration_s=lasted_s,
    )
