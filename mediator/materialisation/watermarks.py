"""Watermarks: up to when everything that was written is in the view, as this replica knows.

Each partition of the feed has its own for every copy. They are ticks, which are counted for all
replicas (`mediator.changes.ticks`). A replica that has not heard of them for a while only takes the
copies for older than they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mediator.base.clock import Clock
from mediator.changes.partitions import partition_of
from mediator.changes.ticks import TickTimes
from mediator.routing.model import ClassRoute
from mediator.stores.port import Fragment

__all__ = ["Location", "Marks", "Watermarks", "place_of"]

Location = tuple[str, str]
"""A copy: the id of its database, and what it is stored as, which holds the class's version."""


def place_of(copy: Fragment) -> Location:
    """Name a copy; on another system it is another one."""
    return copy.database_id, f"{copy.stored_as}@{copy.system}"


@dataclass(frozen=True, slots=True)
class Marks:
    """What was learnt of copies.

    Attributes:
        tick: The tick then.
        until_tick: For each copy and partition the tick up to which it is complete; None: it is
            not.
    """

    tick: int
    until_tick: Mapping[Location, Sequence[int | None]]


class Watermarks:
    """Implements `freshness.Staleness` by what was learnt last."""

    def __init__(self, clock: Clock) -> None:
        self._times = TickTimes(clock)
        self._until: Mapping[Location, Sequence[int | None]] = {}

    def learn(self, marks: Marks, asked_at: float) -> None:
        """Take over newer marks, asked for at our monotonic time `asked_at` (seconds)."""
        self._times.note(marks.tick, asked_at)
        self._until = marks.until_tick

    def age_s(self, tick: int) -> float | None:
        """Return how old what is complete up to a tick may be, in seconds; None: not known."""
        return self._times.age_s(tick)

    def measured_s(self, route: ClassRoute, id_: str | None = None) -> float | None:
        """Return the age of an object's copy at most, or of any of the class; None: not known."""
        if route.copy is None:
            return None
        until = self._until.get(place_of(route.copy), (None,))
        if id_ is not None and len(until) > 1:
            until = (until[partition_of(route.schema.name, id_)],)
        known = [mark for mark in until if mark is not None]
        return self.age_s(min(known)) if len(known) == len(until) else None
