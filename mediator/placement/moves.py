"""Moves: what would live elsewhere if the data that is there did not hold it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from mediator.placement.groups import Pins
from mediator.placement.scores import Choice
from mediator.schema.tree import MAIN_GROUP, Schema

__all__ = ["Move", "moves_between"]


@dataclass(frozen=True)
class Move:
    """A node that is placed on one system and would be placed on another.

    Attributes:
        node: A field; or a class, for its main group.
        current: The system that holds it.
        proposed: The system that it would be placed on.
        reason: Why, for people.
        required: Whether the schema rules the current placement out, not only its score.
        current_score: Score of the current system where the choice was made; None if it has none.
        proposed_score: Score of the proposed one; None where nothing votes.
        why: Why it would be placed there.
    """

    node: str
    current: str
    proposed: str
    reason: str
    required: bool
    current_score: float | None
    proposed_score: float | None
    why: str = ""


def moves_between(
    schema: Schema,
    free: Mapping[str, Choice],
    held: Mapping[str, str],
    pins: Pins,
    why: Callable[[Choice], str],
) -> tuple[Move, ...]:
    """List the moves from what is held to a free decision, classes before their fields.

    Another default system moves nothing: what nothing is asked of may stay where it is.

    Args:
        schema: The schema.
        free: The choice for each node if nothing held data.
        held: The system that each node is on.
        pins: What holds data.
        why: Puts a choice into words.
    """
    scattered = _scattered(free, held)
    moves = []
    for node, declared in _pinned_nodes(schema, pins):
        choice, current = free[node], held[node]
        if declared is not None:
            reason = f"the schema puts it into cache group {declared}"
            moves.append(_move(node, choice, current, reason, why(choice), required=True))
        elif choice.system != current:
            ruled_out = current not in choice.eligible or choice.by in scattered
            if choice.scores is None and not ruled_out:
                continue
            reason = _reason(choice, current)
            moves.append(_move(node, choice, current, reason, why(choice), required=ruled_out))
    return tuple(moves)


def _pinned_nodes(schema: Schema, pins: Pins) -> Iterator[tuple[str, str | None]]:
    """Yield the nodes that hold data, with the group that a field is newly declared for."""
    for class_ in schema.classes.values():
        if (class_.name, MAIN_GROUP) in pins.systems:
            yield class_.name, None
        for field in class_.fields.values():
            group = pins.groups.get((class_.name, field.name))
            if group is not None:
                yield f"{class_.name}.{field.name}", None if field.group == group else field.group


def _scattered(free: Mapping[str, Choice], held: Mapping[str, str]) -> set[str]:
    """Find bound nodes whose parts are held by several systems."""
    systems: dict[str, set[str]] = {}
    for node, choice in free.items():
        if choice.kind == "bound":
            systems.setdefault(choice.by, set()).add(held[node])
    return {node for node, several in systems.items() if len(several) > 1}


def _reason(choice: Choice, current: str) -> str:
    if current not in choice.eligible:
        return f"{current} does not meet the requirements of {choice.by}"
    return f"{choice.system} scores higher than {current} for {choice.by}"


def _move(
    node: str, choice: Choice, current: str, reason: str, why: str, *, required: bool
) -> Move:
    scores = choice.scores.by_system if choice.scores else {}
    now, then = scores.get(current), scores.get(choice.system)
    return Move(node, current, choice.system, reason, required, now, then, why)
