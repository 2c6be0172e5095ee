"""What is published of results: rows as JSON, with how many there are of each."""

from __future__ import annotations

from collections.abc import Mapping

from mediator.views.nodes import RowChange

__all__ = ["difference"]


def difference(before: Mapping[bytes, int], after: Mapping[bytes, int]) -> list[RowChange]:
    """Return the changes that lead from one result to another."""
    rows = [*after, *(row for row in before if row not in after)]
    counts = [(row, before.get(row, 0), after.get(row, 0)) for row in rows]
    return [(row, count - former, count) for row, former, count in counts if count != former]
