"""The port of the shared state of views: definitions, states, results, and deltas.

The replica that holds a database's views publishes; every replica reads. A publication is one step,
so a result, its position and its last delta are always consistent.
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
    "MAX_DELTAS",
    "MAX_DELTA_BYTES",
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

MAX_DELTAS: Final = 1_000
"""Maximum deltas kept of a view."""

MAX_DELTA_BYTES: Final = 2**25
"""Maximum bytes of their rows, as JSON; the last delta is always kept."""

BYTES_AT_ONCE: Final = 2**20
"""Bytes after which a read returns no further delta."""

BUILDING, READY, STOPPED = "building", "ready", "stopped"


class ViewKey(NamedTuple):
    """A view: the id of its database, which is never reused, and its own id."""

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
        created: Time of creation, by a replica's clock; `EPOCH`: not created yet.
    """

    document: Mapping[str, Any]
    class_names: tuple[str, ...]
    state: ViewState
    created: datetime = EPOCH


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication of one view: its next state (None: unchanged), and the changes of its rows.

    `is_first`: publish a delta even if no row has changed, so that a ready view has one.
    """

    state: ViewState | None
    rows: Sequence[RowChange]
    is_first: bool = False


class Published(NamedTuple):
    """The number of publications for a database, and the revision of its definitions."""

    sequence: int
    revision: int


@dataclass(frozen=True, slots=True)
class Result:
    """A result of a view.

    Attributes:
        position: The position of the feed up to which it has all changes.
        delta: The id of the last delta applied to it.
        rows: Rows as JSON, with their counts.
    """

    position: str
    delta: str
    rows: Mapping[bytes, int]


class StoredDelta(NamedTuple):
    """The change of a result up to a position of the feed; `rows` are JSON."""

    id: str
    position: str
    rows: bytes


class ViewResults(Protocol):
    """The shared state of all views. Every method raises `Unavailable`."""

    async def put_view(
        self, key: ViewKey, view: View, limit: int, created: datetime = EPOCH
    ) -> bool:
        """Store a view; false if its database already has `limit`."""

    async def databases(self) -> set[str]:
        """Return the databases that have or had views."""

    async def ids(self, database: str) -> set[str]:
        """Return the ids of all views of a database."""

    async def views(self, database: str, ids: Collection[str]) -> dict[str, StoredView]:
        """Return the existing views of a database among these, by id."""

    async def view(self, key: ViewKey) -> StoredView | None:
        """Return a view, or None."""

    async def drop_view(self, key: ViewKey) -> bool:
        """Remove a view with its result; false if none exists."""

    async def clear(self, database: str) -> None:
        """Remove everything of a dropped database."""

    async def published(self, database: str) -> Published:
        """Return the state that the next publication must follow."""

    async def rows(self, key: ViewKey) -> dict[bytes, int]:
        """Return the published rows of a view."""

    async def publish(
        self,
        database: str,
        lease: Lease,
        sequence: int,
        position: str,
        publications: Mapping[str, Publication],
    ) -> None:
        """Publish after the publication `sequence`; it can be sent twice.

        Views dropped meanwhile are skipped. An empty `position` leaves it unchanged.

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

        Returns fewer than `limit` if they exceed `BYTES_AT_ONCE`.

        Raises:
            PositionGone: That delta is no longer kept, or never existed.
        """


def difference(before: Mapping[bytes, int], after: Mapping[bytes, int]) -> list[RowChange]:
    """Return the changes that lead from one result to another."""
    rows = [*after, *(row for row in before if row not in after)]
    counts = [(row, before.get(row, 0), after.get(row, 0)) for row in rows]
    return [(row, count - former, count) for row, former, count in counts if count != former]
