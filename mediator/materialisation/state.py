"""What is known of the copies by all replicas: up to when they are complete, and what is missing.

Each partition of a database's feed has one materialiser at a time. It keeps there how far it has
read the feed (the *cursor*), and for each copy what is known of the objects of the partition. A
step is taken only by who holds the lease, and only from where it was believed to begin; so whatever
is told of copies that were retracted meanwhile, or by a materialiser that was replaced, is nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mediator.base.lease import Lease
from mediator.materialisation.watermarks import Marks

__all__ = ["CopyState", "PartitionState", "Step", "ViewState"]


@dataclass(frozen=True, slots=True)
class CopyState:
    """What is known of the objects of one partition in a copy.

    Attributes:
        until_tick: All that was acknowledged before it is in the copy; None: it is not complete.
        build: Token of the build that is to complete it; empty: none is needed.
        stuck: Objects that could not be copied. Until they are, `until_tick` does not move.
    """

    until_tick: int | None = None
    build: str = ""
    stuck: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionState:
    """What is known of one partition.

    Attributes:
        cursor: The last change that was dealt with; None: nobody has begun.
        copies: By the name of the copy (`watermarks.place_of`).
    """

    cursor: str | None = None
    copies: Mapping[str, CopyState] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """A copy's next state, if its present one is `before`; None stands for none."""

    copy: str
    before: CopyState | None
    after: CopyState | None


class ViewState(Protocol):
    """Keeps the states of all databases. Every method raises `Unavailable`."""

    async def load(self, database: str, partition: int) -> PartitionState:
        """Return what is known of a partition."""

    async def advance(
        self,
        database: str,
        partition: int,
        cursor: tuple[str | None, str],
        steps: Sequence[Step],
        lease: Lease,
    ) -> None:
        """Move the cursor, and take those steps that begin at the present states.

        Args:
            database: The database.
            partition: The partition.
            cursor: Where the cursor is believed to be, and where it goes.
            steps: What becomes of copies; all in the same instant.
            lease: The lease of the partition's materialiser.

        Raises:
            LeaseLost: The lease is not held, or the cursor is elsewhere; nothing was done.
        """

    async def marks(self, database: str) -> Marks:
        """Return up to when each copy of a database is complete, and the tick of now."""

    async def retract(self, database: str, copies: Collection[str] | None = None) -> None:
        """Forget what is known of copies; None: of the database."""

    async def tell(self, database: str, about: str, told: Any) -> None:
        """Leave a JSON document for the operators, on every replica."""

    async def told(self, database: str) -> Mapping[str, Any]:
        """Return what was told, by what it is about."""
