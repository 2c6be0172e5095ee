"""Violations: annotations whose score stays below their threshold (docs/papers/ppm.md).

A pure state machine. An annotation is violated once its own score has stayed below `below` for
`for_s`; the violation ends when the score recovers.
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
class _WatchedAnnotation:
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
    """Evaluate all annotations with a rule; return the next state, and the violation events.

    `state` is the result of the last call, empty at first. `placements` has the system of each
    field, by node. `now` is in seconds of any clock that does not go back. An unknown metric
    changes nothing; a field that was moved, or an annotation that was removed, starts over without
    an event.
    """
    spells: dict[_Key, Spell] = {}
    events = []
    for annotation in _watched_annotations(schema):
        system = placements.get(annotation.node, "")
        key = (annotation.node, annotation.index, system)
        before, candidate = state.get(key), candidates.get(system)
        measured = candidate.measured(annotation.requirement) if candidate else None
        spell, phase = _step(annotation, before, measured, now)
        if spell:
            spells[key] = spell
        reported = spell or before
        if phase and reported and measured is not None:
            detected = _violation_event(schema, annotation, system, measured, now - reported.since)
            events.append(ViolationEvent(phase, detected))
    return spells, events


def _step(
    annotation: _WatchedAnnotation, spell: Spell | None, measured: float | None, now: float
) -> tuple[Spell | None, _Phase | None]:
    if measured is None:
        return spell, None
    if fulfilment(annotation.requirement, measured) >= annotation.rule.below:
        return None, "ended" if spell and spell.reported else None
    spell = spell or Spell(now)
    if spell.reported or now - spell.since < annotation.rule.for_s:
        return spell, None
    return replace(spell, reported=True), "began"


def _watched_annotations(schema: Schema) -> Iterator[_WatchedAnnotation]:
    """Yield every annotation with a rule, pushed down to fields."""
    for class_ in schema.classes.values():
        for field_ in class_.fields.values():
            node = f"{class_.name}.{field_.name}"
            annotations = (*schema.annotations, *class_.annotations, *field_.annotations)
            for index, annotation in enumerate(annotations):
                if isinstance(annotation, ContinuousRequirement) and annotation.violation:
                    yield _WatchedAnnotation(node, index, annotation, annotation.violation)


def _violation_event(
    schema: Schema, annotation: _WatchedAnnotation, system: str, measured: float, lasted_s: float
) -> ViolationDetected:
    return ViolationDetected(
        database=schema.database,
        node=annotation.node,
        metric=str(annotation.requirement.metric),
        system=system,
        measured=measured,
        score=fulfilment(annotation.requirement, measured),
        below=annotation.rule.below,
        duration_s=lasted_s,
    )
