"""What a schema change does to data that is there: what it moves, leaves behind or reads anew."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from mediator.base.errors import (
    DataWouldMove,
    Unplaceable,
)
from mediator.control.layout import (
    fragments_of,
    location_of,
    same_place,
)
from mediator.placement.candidates import Candidate
from mediator.placement.decide import Decision, decide, pins_of
from mediator.routing.model import DatabaseRoute
from mediator.schema.overrides import Overrides
from mediator.schema.tree import ClassSchema, Field, Schema
from mediator.stores.port import Fragment

__all__ = ["decide_change", "left_behind", "replaced", "without", "would_move"]


def would_move(moves: Sequence[dict[str, Any]]) -> DataWouldMove:
    nodes = ", ".join(move["node"] for move in moves)
    return DataWouldMove(
        f"The change would move or reinterpret data that is there: {nodes}.",
        extra={"plan": list(moves)},
    )


def _drifted(
    present: DatabaseRoute, candidates: Sequence[Candidate], holding: set[str], overrides: Overrides
) -> set[tuple[str, str, bool]]:
    """Return the moves that are due without a change: scores, overrides or systems have changed."""
    try:
        today = decide(present.schema, candidates, pins_of(present, sorted(holding)), overrides)
    except Unplaceable:
        return set()
    return {(move.node, move.proposed, move.required) for move in today.moves}


def _reinterpreted(
    new: Schema, old: Schema, holding: set[str], dropped: Collection[str]
) -> list[dict[str, Any]]:
    """Return which stored values the new schema would decode differently, or not at all."""
    plan = []
    for class_name in sorted(holding):
        before = old.classes[class_name]
        after = new.classes.get(class_name)
        for name, field in before.fields.items():
            if f"{class_name}.{name}" in dropped:
                continue
            now = after.fields.get(name) if after else None
            if now is None or (now.type, now.items) != (field.type, field.items):
                became = "nothing" if now is None else now.type.value
                reason = f"stored as {field.type.value}, declared as {became}"
                if now is None and after is not None:
                    reason += _meant(field, before, after)
                if now is not None:
                    reason += "; add a field of the new type, and copy the values"
                plan.append({"node": f"{class_name}.{name}", "reason": reason})
        if after is None and not before.fields:
            plan.append({"node": class_name, "reason": "the class is gone"})
    return plan


def _meant(field: Field, before: ClassSchema, after: ClassSchema) -> str:
    """Say what to pass for a field that is gone: it was renamed, if one of its type is new."""
    alike = (
        name
        for name, new in after.fields.items()
        if name not in before.fields and (new.type, new.items) == (field.type, field.items)
    )
    name = next(alike, None)
    node = f"{before.name}.{field.name}"
    if name is None:
        return f"; to drop it with its values, pass drop={node}"
    return f"; to rename it, pass rename={node}:{name}"


def without(fragments: Sequence[Fragment], others: Sequence[Fragment]) -> list[Fragment]:
    """Return the fragments whose location none of the others has."""
    locations = set(map(location_of, others))
    return [fragment for fragment in fragments if location_of(fragment) not in locations]


def replaced(
    present: DatabaseRoute | None, new: DatabaseRoute, holding: Collection[str]
) -> list[Fragment]:
    """Return the fragments of empty classes that change: later writes to them would be lost."""
    return [
        fragment
        for fragment in fragments_of(present)
        if fragment.class_name not in holding
        and (
            (now := same_place(new, fragment)) is None
            or (fragment.fields, fragment.groups, fragment.unique, fragment.indexes)
            != (now.fields, now.groups, now.unique, now.indexes)
        )
    ]


def left_behind(
    present: DatabaseRoute | None,
    new: DatabaseRoute,
    holding: Collection[str],
    dropped: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Return which systems would keep data of a class that is no longer placed there.

    One that only holds fields that are `dropped` (``class.field``) may be left.
    """
    reason = "the class leaves its system"
    return [
        {"node": f.class_name, "from": f.system, "to": None, "reason": reason}
        for f in without(fragments_of(present), fragments_of(new))
        if f.class_name in holding and not _is_dropped(f, new, dropped)
    ]


def _is_dropped(fragment: Fragment, new: DatabaseRoute, dropped: Collection[str]) -> bool:
    """Whether a fragment goes with all its fields, and its objects stay: they exist elsewhere."""
    route = new.classes.get(fragment.class_name)
    stays = route is not None and route.anchor.system == fragment.anchor_system != fragment.system
    return stays and all(f"{fragment.class_name}.{name}" in dropped for name in fragment.fields)


def decide_change(
    schema: Schema,
    present: DatabaseRoute | None,
    holding: set[str],
    candidates: Sequence[Candidate],
    overrides: Overrides,
    dropped: Collection[str] = (),
) -> tuple[Decision, list[dict[str, Any]]]:
    """Decide placements; classes that hold data stay, and the moves of the change are returned.

    Fields that are `dropped` (``class.field``) may leave them.
    """
    if present is None or not holding:
        return decide(schema, candidates, overrides=overrides), []
    decision = decide(schema, candidates, pins_of(present, sorted(holding)), overrides)
    kept = {n: each for n, each in present.overrides.items() if overrides.get(n) == each}
    moved_anyway = _drifted(present, candidates, holding, kept)
    moves = [
        {"node": m.node, "from": m.current, "to": m.proposed, "reason": m.reason}
        for m in decision.moves
        # Scores that have drifted since the last schema are no reason to refuse this one, nor is
        # an override that has ended.
        if (m.node, m.proposed, m.required) not in moved_anyway
    ]
    return decision, moves + _reinterpreted(schema, present.schema, holding, dropped)
