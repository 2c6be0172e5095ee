"""The port of what replicas share of views: definitions, states, results, and how these changed.

The replica that holds a database's views publishes; each replica reads. A publication is one step,
so a result, its position and the last change of it always belong together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol

from mediator.base.clock import EPOCH
from mediator.base.lease import Lease
from mediator.views.nodes import RowChange
from mediator.views.view import View

__all__ = [
    "BUILDING",
    "BYTES_AT_ONCE",
    "MOST_BYTES_OF_DELTAS",
    "MOST_DELTAS",
    "READY",
    "STOPPED",
    "Publication",
    "Published",
    "Result",
    "StoredDelta",
    "StoredView",
    "ViewKey",
    "ViewResults",
    "ViewState",
    "difference",
]

MOST_DELTAS: Final = 1_000
"""Deltas of a view that are kept."""

MOST_BYTES_OF_DELTAS: Final = 2**25
"""Bytes of their rows, as JSON; the last delta is kept in any case."""

BYTES_AT_ONCE: Final = 2**20
"""Bytes after which no further delta is read at once."""

BUILDING, READY, STOPPED = "building", "ready", "stopped"


class ViewKey(NamedTuple):
    """A view: the id of its database, which no other has had, and its own."""

    database: str
    view: str


class ViewState(NamedTuple):
    """`building`, `ready` or `stopped`; `detail` says why it was stopped."""

    name: str = BUILDING
    detail: str = ""


@dataclass(frozen=True, slots=True)
class StoredView:
    """A view as its owner sent it, the classes that it reads, and its state.

    Attributes:
        created: When, by the clock of a replica; `EPOCH`: it is not yet.
    """

    document: Mapping[str, Any]
    class_names: tuple[str, ...]
    state: ViewState
    created: datetime = EPOCH


@dataclass(frozen=True, slots=True)
class Publication:
    """What is published of one view: its next state, None if it stays, and how its rows changed.

    `is_first`: there is a delta even if no row has changed, so that a view that is ready has one.
    """

    state: ViewState | None
    rows: Sequence[RowChange]
    is_first: bool = False


class Published(NamedTuple):
    """How often was published for a database, and the revision of its definitions."""

    sequence: int
    revision: int


@dataclass(frozen=True, slots=True)
class Result:
    """A result of a view.

    Attributes:
        position: The position of the feed up to which every change is in it.
        delta: The id of the last delta that is in it.
        rows: Rows as JSON, with how many there are of each.
    """

    position: str
    delta: str
    rows: Mapping[bytes, int]


class StoredDelta(NamedTuple):
    """How a result has changed up to a position of the feed; `rows` are JSON."""

    id: str
    position: str
    rows: bytes


class ViewResults(Protocol):
    """What is shared of all views. Every method raises `Unavailable`."""

    async def put_view(
        self, key: ViewKey, view: View, most: int, created: datetime = EPOCH
    ) -> bool:
        """Write down a view; false if its database has `most` already."""

    async def databases(self) -> set[str]:
        """Return the databases that have views, or had."""

    async def ids(self, database: str) -> set[str]:
        """Return the ids of all views of a database."""

    async def views(self, database: str, ids: Collection[str]) -> dict[str, StoredView]:
        """Return those views of a database that there are, by id."""

    async def view(self, key: ViewKey) -> StoredView | None:
        """Return a view; None: there is none."""

    async def drop_view(self, key: ViewKey) -> bool:
        """Remove a view with its result; false if there is none."""

    async def clear(self, database: str) -> None:
        """Remove all of a database that was dropped."""

    async def published(self, database: str) -> Published:
        """Return what the next publication has to follow."""

    async def rows(self, key: ViewKey) -> dict[bytes, int]:
        """Return the rows that are published of a view."""

    async def publish(
        self,
        database: str,
        lease: Lease,
        sequence: int,
        position: str,
        publications: Mapping[str, Publication],
    ) -> None:
        """Publish what follows the publication `sequence`; it may be sent twice.

        Views that were dropped meanwhile are left out. An empty `position` leaves it as it is.

        Raises:
            LeaseLost: The lease is not held, or another was published since; nothing was done.
        """

    async def result(self, key: ViewKey) -> Result | None:
        """Return the result of a view; None: it has none."""

    async def last_delta(self, key: ViewKey) -> str | None:
        """Return the id of the last delta of a view; None: it has none yet."""

    async def deltas(
        self, key: ViewKey, after: str, limit: int, wait_s: float
    ) -> list[StoredDelta]:
        """Return deltas after one, waiting for the first of them.

        They are fewer than `limit` if they have more than `BYTES_AT_ONCE`.

        Raises:
            PositionGone: That delta is not kept any more, or never was.
        """


def difference(before: Mapping[bytes, int], after: Mapping[bytes, int]) -> list[RowChange]:
    """Return the changes that lead from one result to another."""
    rows = [*after, *(row for row in before if row not in after)]
    counts = [(row, before.get(row, 0), after.get(row, 0)) for row in rows]
    return [(row, count - former, count) for row, former, count in counts if count != former]
