"""The state of the copies, shared by all replicas: how complete they are, and what is missing.

Each partition of a database's feed has one materialiser at a time. It records how far it has read
the feed (the *cursor*), and the state of the partition in each copy. Only the holder of the lease
takes a step, and only from the expected state. A step therefore has no effect on copies that were
retracted meanwhile, or after its materialiser was replaced.

A *watermark* is the tick up to which a copy has every acknowledged write, one per partition. Ticks
are global to all replicas (`mediator.changes.ticks`). A replica that has not read the watermarks
for a while only overestimates the age of copies.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mediator.base.clock import Clock
from mediator.base.lease import Lease
from mediator.changes.feed import partition_of
from mediator.changes.ticks import TickTimes
from mediator.routing.model import ClassRoute
from mediator.stores.port import Fragment

__all__ = [
    "CopyKey",
    "CopyState",
    "CopyStep",
    "ViewPartition",
    "ViewState",
    "WatermarkSnapshot",
    "Watermarks",
    "copy_key",
]

CopyKey = tuple[str, str]
"""The id of the database, and the stored name of the copy, which has the class's version."""


def copy_key(copy: Fragment) -> CopyKey:
    """Return the key of a copy; copies on different systems differ."""
    return copy.database_id, f"{copy.stored_as}@{copy.system}"


@dataclass(frozen=True, slots=True)
class WatermarkSnapshot:
    """The watermarks of copies at one instant.

    Attributes:
        tick: The tick of that instant.
        until_tick: By copy and partition, the tick up to which it is complete; None: incomplete.
    """

    tick: int
    until_tick: Mapping[CopyKey, Sequence[int | None]]


class Watermarks:
    """The maximum ages of copies in views, by the last snapshot."""

    def __init__(self, clock: Clock) -> None:
        self._times = TickTimes(clock)
        self._until: Mapping[CopyKey, Sequence[int | None]] = {}

    def update(self, snapshot: WatermarkSnapshot, requested_at: float) -> None:
        """Apply a newer snapshot, requested at our monotonic time `requested_at` (seconds)."""
        self._times.note(snapshot.tick, requested_at)
        self._until = snapshot.until_tick

    def age_s(self, tick: int) -> float | None:
        """Return the maximum age of a copy complete up to a tick, in seconds; None: unknown."""
        return self._times.age_s(tick)

    def measured_s(self, route: ClassRoute, id_: str | None = None) -> float | None:
        """Return the maximum age of an object's copy, or of the class's copies; None: unknown."""
        if route.copy is None:
            return None
        until = self._until.get(copy_key(route.copy), (None,))
        if id_ is not None and len(until) > 1:
            until = (until[partition_of(route.schema.name, id_)],)
        present = [tick for tick in until if tick is not None]
        return self.age_s(min(present)) if len(present) == len(until) else None


@dataclass(frozen=True, slots=True)
class CopyState:
    """The state of one partition of a copy.

    Attributes:
        until_tick: The copy has all writes acknowledged before it; None: incomplete.
        build: Token of the build that will complete it; empty: none needed.
        stuck: Objects that could not be copied. Until they are copied, `until_tick` does not move.
        more_stuck: Whether more objects are stuck than listed. Once the listed ones are copied, a
            build finds the others.
    """

    until_tick: int | None = None
    build: str = ""
    stuck: tuple[str, ...] = ()
    more_stuck: bool = False


@dataclass(frozen=True, slots=True)
class ViewPartition:
    """The state of one partition of a database.

    Attributes:
        cursor: The last change applied; None: none yet.
        copies: By the name of the copy (`copy_key`).
    """

    cursor: str | None = None
    copies: Mapping[str, CopyState] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CopyStep:
    """A copy's next state, taken if its current state is `before`; None: no state."""

    copy: str
    before: CopyState | None
    after: CopyState | None


class ViewState(Protocol):
    """Keeps the states of all databases. Every method raises `Unavailable`."""

    async def load(self, database: str, partition: int) -> ViewPartition:
        """Return the state of a partition."""

    async def advance(
        self,
        database: str,
        partition: int,
        cursor: tuple[str | None, str],
        steps: Sequence[CopyStep],
        lease: Lease,
    ) -> None:
        """Atomically move the cursor and take the steps whose `before` is the current state.

        `cursor` is its expected and its next position, `lease` the materialiser's.

        Raises:
            LeaseLost: The lease is not held, or the cursor is elsewhere; nothing was done.
        """

    async def watermarks(self, database: str) -> WatermarkSnapshot:
        """Return the watermarks of a database's copies, and the current tick."""

    async def retract(self, database: str, copies: Collection[str] | None = None) -> None:
        """Remove the state of copies; None: of all copies of the database."""

    async def publish(self, database: str, subject: str, report: Any) -> None:
        """Store a JSON document for operators, visible on every replica."""

    async def reports(self, database: str) -> Mapping[str, Any]:
        """Return the published documents by their subjects."""
