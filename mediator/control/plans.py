"""Plans of schema changes: the present, the new layout, and the moves between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mediator.catalogue.stored_databases import StoredDatabase
from mediator.control.changes import drifted, reinterpreted
from mediator.placement.candidates import Candidate
from mediator.placement.decide import Decision, decide, pins_of
from mediator.routing.model import DatabaseRoute
from mediator.schema.tree import Schema

__all__ = ["SchemaPlan", "decide_change"]


@dataclass(frozen=True, slots=True)
class SchemaPlan:
    """What setting a schema would change."""

    stored: StoredDatabase | None
    new: StoredDatabase
    present: DatabaseRoute | None
    route: DatabaseRoute
    holding: frozenset[str]
    decision: Decision
    moves: Sequence[dict[str, Any]]
    epoch: int


def decide_change(
    schema: Schema,
    present: DatabaseRoute | None,
    holding: set[str],
    candidates: Sequence[Candidate],
) -> tuple[Decision, list[dict[str, Any]]]:
    """Decide placements; classes that hold data stay, and the moves of the change are returned.

    Scores that have drifted since the last schema are no reason to refuse this one: they make a
    proposal. Only what the change itself would move counts.
    """
    if present is None or not holding:
        return decide(schema, candidates), []
    decision = decide(schema, candidates, pins_of(present, sorted(holding)))
    moved_anyway = drifted(present, candidates, holding)
    moves = [
        {"node": m.node, "from": m.current, "to": m.proposed, "reason": m.reason}
        for m in decision.moves
        if m.required or (m.node, m.proposed) not in moved_anyway
    ]
    return decision, moves + reinterpreted(schema, present.schema, holding)
