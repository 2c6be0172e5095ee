"""The state of the copies, shared by all replicas: how complete they are, what is missing.

Each partition of a database's feed has one materialiser at a time. It records how far it has read
the feed (the *cursor*), and the state of the partition in each copy. A step is taken only by
the holder of the lease, and only from the state it expects. So a step has no effect on copies that
were retracted meanwhile, or if its materialiser was replaced.

A *watermark* is the tick up to which every acknowledged write is in a copy, one for each partition.
Ticks are counted for all replicas (`mediator.changes.ticks`). A replica that has not read the
watermarks for a while only takes the copies for older than they are.
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
    """How old the copies in views may be, by the last snapshot."""

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


@dataclass(frozen=True, slots=True)
class CopyState:
    """The state of one partition of a copy.

    Attributes:
        until_tick: All that was acknowledged before it is in the copy; None: it is not complete.
        build: Token of the build that is to complete it; empty: none is needed.
        stuck: Objects that could not be copied. Until they are, `until_tick` does not move.
        more_stuck: Whether there are more of them than `stuck` names. Once those are copied, a
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
        cursor: The last change that was applied; None: none was.
        copies: By the name of the copy (`copy_key`).
    """

    cursor: str | None = None
    copies: Mapping[str, CopyState] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CopyStep:
    """A copy's next state, taken if its present one is `before`; None: no state."""

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
        """Move the cursor, and take those steps whose `before` is the present state, at once.

        `cursor` is its expected position and the next one, `lease` the materialiser's.

        Raises:
            LeaseLost: The lease is not held, or the cursor is elsewhere; nothing was done.
        """

    async def watermarks(self, database: str) -> WatermarkSnapshot:
        """Return up to when each copy of a database is complete, and the present tick."""

    async def retract(self, database: str, copies: Collection[str] | None = None) -> None:
        """Remove the state of copies; None: of all of the database."""

    async def publish(self, database: str, subject: str, report: Any) -> None:
        """Store a JSON document that operators see on every replica."""

    async def reports(self, database: str) -> Mapping[str, Any]:
        """Return the published documents by their subjects."""
