"""Watermarks: up to when every acknowledged write is in the view, as this replica knows.

There is one for each copy and partition of the feed. They are ticks, which are counted for all
replicas (`mediator.changes.ticks`). A replica that has not read them for a while only takes the
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

__all__ = ["CopyKey", "WatermarkSnapshot", "Watermarks", "copy_key"]

CopyKey = tuple[str, str]
"""The id of the database, and what the copy is stored as, which has the version of the class."""


def copy_key(copy: Fragment) -> CopyKey:
    """Return the key of a copy; on another system it is another copy."""
    return copy.database_id, f"{copy.stored_as}@{copy.system}"


@dataclass(frozen=True, slots=True)
class WatermarkSnapshot:
    """The watermarks of copies, as of one instant.

    Attributes:
        tick: The tick of that instant.
        until_tick: For each copy and partition the tick up to which it is complete; None: it is
            not.
    """

    tick: int
    until_tick: Mapping[CopyKey, Sequence[int | None]]


class Watermarks:
    """Implements `freshness.Staleness` by the last snapshot."""

    def __init__(self, clock: Clock) -> None:
        self._times = TickTimes(clock)
        self._until: Mapping[CopyKey, Sequence[int | None]] = {}

    def update(self, snapshot: WatermarkSnapshot, requested_at: float) -> None:
        """Take over a newer snapshot, requested at our monotonic time `requested_at` (seconds)."""
        self._times.note(snapshot.tick, requested_at)
        self._until = snapshot.until_tick

    def age_s(self, tick: int) -> float | None:
        """Return how old what is complete up to a tick may be, in seconds; None: not known."""
        return self._times.age_s(tick)

    def measured_s(self, route: ClassRoute, id_: str | None = None) -> float | None:
        """Return the age of an object's copy at most, or of any of the class; None: not known."""
        if route.copy is None:
            return None
        until = self._until.get(copy_key(route.copy), (None,))
        if id_ is not None and len(until) > 1:
            until = (until[partition_of(route.schema.name, id_)],)
        known = [tick for tick in until if tick is not None]
        return self.age_s(min(known)) if len(known) == len(until) else None
