"""Watermarks: up to when everything that was written is in the primary, as this replica knows.

Each partition of the feed has its own for every copy. They are times of the coordination Redis,
which all replicas share. A replica that has not heard of them for a while only takes the copies for
older than they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mediator.changes.partitions import partition_of
from mediator.clock import Clock
from mediator.placement.routing import ClassRoute
from mediator.stores.port import Fragment

__all__ = ["Marks", "Place", "Watermarks", "place_of"]

Place = tuple[str, str]
"""A copy: the id of its database, and what it is stored as, which holds the class's version."""


def place_of(copy: Fragment) -> Place:
    """Name a copy; on another system it is another one."""
    return copy.database_id, f"{copy.stored_as}@{copy.system}"


@dataclass(frozen=True, slots=True)
class Marks:
    """What was learnt of all copies at one time.

    Attributes:
        now_us: The shared time then, in microseconds.
        asked_at: Our monotonic time when we asked, in seconds.
        until_us: For each copy and partition the time up to which it is complete; None: it is not.
    """

    now_us: int
    asked_at: float
    until_us: Mapping[Place, Sequence[int | None]]


class Watermarks:
    """Implements `freshness.Staleness` by what was learnt last."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._marks = Marks(0, 0.0, {})

    def learn(self, marks: Marks) -> None:
        """Take over newer marks."""
        self._marks = marks

    def measured_s(self, route: ClassRoute, id_: str | None = None) -> float | None:
        """Return the age of an object's copy at most, or of any of the class; None: not known."""
        if route.copy is None:
            return None
        marks = self._marks
        until = marks.until_us.get(place_of(route.copy), (None,))
        if id_ is not None and len(until) > 1:
            until = (until[partition_of(route.schema.name, id_)],)
        known = [mark for mark in until if mark is not None]
        if len(known) < len(until):
            return None
        behind = (marks.now_us - min(known)) / 1_000_000
        return max(0.0, behind) + self._clock.monotonic() - marks.asked_at
