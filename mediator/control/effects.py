"""The effects of a schema change on existing data: moves, leftovers and reinterpretation."""

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
    same_location,
)
from mediator.placement.candidates import Candidate
from mediator.placement.decide import Decision, decide, pins_of
from mediator.routing.model import DatabaseRoute
from mediator.schema.overrides import Overrides
from mediator.schema.tree import ClassSchema, Field, Schema
from mediator.stores.port import Fragment

__all__ = ["decide_change", "left_behind", "replaced_fragments", "without", "would_move"]


def would_move(moves: Sequence[dict[str, Any]]) -> DataWouldMove:
    nodes = ", ".join(move["node"] for move in moves)
    return DataWouldMove(
        f"The change would move or reinterpret existing data: {nodes}.",
        extra={"plan": list(moves)},
    )


def _drifted_moves(
    present: DatabaseRoute, candidates: Sequence[Candidate], holding: set[str], overrides: Overrides
) -> set[tuple[str, str, bool]]:
    """Return the moves due without the change: scores, overrides or systems have changed."""
    try:
        decision = decide(present.schema, candidates, pins_of(present, sorted(holding)), overrides)
    except Unplaceable:
        return set()
    return {(move.node, move.proposed, move.required) for move in decision.moves}


def _reinterpreted_values(
    new: Schema, old: Schema, holding: set[str], dropped: Collection[str]
) -> list[dict[str, Any]]:
    """Return stored values that the new schema would decode differently or not at all."""
    plan = []
    for class_name in sorted(holding):
        before = old.classes[class_name]
        after = new.classes.get(class_name)
        for name, field in before.fields.items():
            if f"{class_name}.{name}" in dropped:
                continue
            new_field = after.fields.get(name) if after else None
            if new_field is None or (new_field.type, new_field.items) != (field.type, field.items):
                new_type = "nothing" if new_field is None else new_field.type.value
                reason = f"stored as {field.type.value}, declared as {new_type}"
                if new_field is None and after is not None:
                    reason += _removal_hint(field, before, after)
                if new_field is not None:
                    reason += "; add a field of the new type, and copy the values"
                plan.append({"node": f"{class_name}.{name}", "reason": reason})
        if after is None and not before.fields:
            plan.append({"node": class_name, "reason": "the class is gone"})
    return plan


def _removal_hint(field: Field, before: ClassSchema, after: ClassSchema) -> str:
    """Return the hint for a removed field: rename it, if its type has a new field, or drop it."""
    candidates = (
        name
        for name, new in after.fields.items()
        if name not in before.fields and (new.type, new.items) == (field.type, field.items)
    )
    name = next(candidates, None)
    node = f"{before.name}.{field.name}"
    if name is None:
        return f"; to drop it with its values, pass drop={node}"
    return f"; to rename it, pass rename={node}:{name}"


def without(fragments: Sequence[Fragment], others: Sequence[Fragment]) -> list[Fragment]:
    """Return the fragments whose location none of the `others` has."""
    locations = set(map(location_of, others))
    return [fragment for fragment in fragments if location_of(fragment) not in locations]


def replaced_fragments(
    present: DatabaseRoute | None, new: DatabaseRoute, holding: Collection[str]
) -> list[Fragment]:
    """Return the changing fragments of empty classes: later writes to them would be lost."""
    return [
        fragment
        for fragment in fragments_of(present)
        if fragment.class_name not in holding
        and (
            (counterpart := same_location(new, fragment)) is None
            or (fragment.fields, fragment.groups, fragment.unique, fragment.indexes)
            != (counterpart.fields, counterpart.groups, counterpart.unique, counterpart.indexes)
        )
    ]


def left_behind(
    present: DatabaseRoute | None,
    new: DatabaseRoute,
    holding: Collection[str],
    dropped: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Return the systems that would keep data of a class no longer placed there.

    A system that only holds fields that are `dropped` (``class.field``) can be left.
    """
    reason = "the class leaves its system"
    return [
        {"node": f.class_name, "from": f.system, "to": None, "reason": reason}
        for f in without(fragments_of(present), fragments_of(new))
        if f.class_name in holding and not _is_dropped(f, new, dropped)
    ]


def _is_dropped(fragment: Fragment, new: DatabaseRoute, dropped: Collection[str]) -> bool:
    """Whether a fragment loses all its fields, and its objects stay: they exist elsewhere."""
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
    """Decide placements; classes that hold data stay. Also return the moves of the change.

    Fields that are `dropped` (``class.field``) can leave these classes.
    """
    if present is None or not holding:
        return decide(schema, candidates, overrides=overrides), []
    decision = decide(schema, candidates, pins_of(present, sorted(holding)), overrides)
    unchanged_overrides = {
        node: old for node, old in present.overrides.items() if overrides.get(node) == old
    }
    drifted = _drifted_moves(present, candidates, holding, unchanged_overrides)
    moves = [
        {"node": m.node, "from": m.current, "to": m.proposed, "reason": m.reason}
        for m in decision.moves
        # Neither scores that have drifted since the last schema nor overrides that have ended are
        # reasons to refuse this one.
        if (m.node, m.proposed, m.required) not in drifted
    ]
    return decision, moves + _reinterpreted_values(schema, present.schema, holding, dropped)
