"""The port of the change feed: streams of changes, one for each partition of a database.

Databases are identified by their ids. A relay appends changes with their positions in the store's
log. For each log, the feed keeps the position of the last entry appended (the *cursor*) and moves
it in the same step as the append, so a batch that is appended twice takes effect once.

*Stream ids* are positions in a stream: text that only the feed understands. `BEGINNING` is before
every change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, Protocol

from mediator.base.errors import MediatorError
from mediator.base.lease import Lease
from mediator.changes.document import EncodedChange
from mediator.model.change import Change

__all__ = [
    "APPENDED_AT_ONCE",
    "APPENDED_BYTES",
    "BEGINNING",
    "PARTITIONS",
    "Event",
    "Feed",
    "FeedRolledBack",
    "LogBatch",
    "LogSource",
    "PositionGone",
    "WriterProgress",
    "partition_of",
]

APPENDED_AT_ONCE: Final = 1_000
"""Maximum changes in one append, which is a script and blocks its server."""

APPENDED_BYTES: Final = 2**22
"""Approximate maximum bytes of one append, unless a single change is larger."""

PARTITIONS: Final = 4
"""Streams of each database's feed. Changing the number would break the order of changes."""


def partition_of(class_name: str, object_id: str) -> int:
    name = f"{class_name}/{object_id}".encode()
    return int.from_bytes(blake2b(name, digest_size=4).digest()) % PARTITIONS


BEGINNING: Final = "0-0"


class FeedRolledBack(Exception):
    """The feed has lost changes: its server has an older state of its data."""


class PositionGone(MediatorError):
    """Changes after the position are no longer kept, or its feed was lost."""


@dataclass(frozen=True, slots=True)
class LogSource:
    system: str
    log: str


@dataclass(frozen=True, slots=True)
class LogBatch:
    """Changes of one database that a relay has read from a log, in log order.

    Attributes:
        source: The log.
        after: The position after which it was read; everything up to it must already be appended.
        upto: The position up to which it was read.
        entries: The changes, each with its position.
    """

    source: LogSource
    after: str
    upto: str
    entries: Sequence[tuple[str, Change]]


@dataclass(frozen=True, slots=True)
class WriterProgress:
    """How many pending changes of a system's records one replica has appended.

    `appends` counts its appends to the feed of each database.
    """

    system: str
    replica: str
    appends: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Event:
    """A change for subscribers; `data` is its JSON document."""

    partition: int
    id: str
    class_name: str
    data: bytes


class Feed(Protocol):
    """The feeds of all databases. Every method raises `Unavailable` if they cannot be reached."""

    async def cursors(self, database: str, system: str) -> Mapping[str, str]:
        """Return the cursors of a system's logs, by log."""

    async def create_cursor(self, database: str, source: LogSource, position: str) -> None:
        """Set the cursor of a log that has none."""

    async def append(
        self,
        database: str,
        batches: Sequence[LogBatch],
        lease: Lease,
        until_tick: int | None = None,
    ) -> int:
        """Append the changes after the cursors and move them, all in one step.

        It can be sent twice: changes before the cursors are skipped. All batches are of one system;
        batches without entries only compare and move their cursors. `until_tick` is published in
        the same step: the feed then has every change of the system acknowledged before this tick.
        None: unknown.

        Returns:
            How many changes were new.

        Raises:
            LeaseLost: The lease is not held; nothing was done.
            FeedRolledBack: A cursor is before its `LogBatch.after`; nothing was done.
        """

    async def append_newer(
        self, database: str, changes: Sequence[EncodedChange], progress: WriterProgress
    ) -> int:
        """Append, in order, the changes whose version is above the last one of their group.

        Updates the `progress` of the replica that appends them.

        Returns:
            How many changes were new.

        Raises:
            FeedRolledBack: The feed lacks earlier changes of the replica; nothing was done.
        """

    async def acknowledged(self, database: str, changes: Sequence[Change]) -> None:
        """Record that the outbox of these appended changes was acknowledged.

        The last versions of their groups expire after a while, unless more changes are appended.
        """

    async def publish_progress(
        self, database: str, progress: WriterProgress, until_tick: int
    ) -> None:
        """Publish that the feed has every change that a replica made before `until_tick`.

        Raises:
            FeedRolledBack: The feed lacks earlier changes of the replica.
        """

    async def leave(self, database: str, progress: WriterProgress) -> None:
        """Remove a replica that has appended all its changes and no longer writes."""

    async def published_progress(self, database: str, system: str) -> Mapping[str, int]:
        """Return for each replica of a system the last tick of `publish_progress`."""

    async def retire(self, database: str, system: str, published: Mapping[str, int]) -> None:
        """Remove replicas that are no longer registered, after a sweep of their writes.

        `published` is their `published_progress` from before the sweep: a replica that has
        registered again or published since then stays.
        """

    async def relayed_until(self, database: str) -> Mapping[str, int]:
        """Return for each system the tick before which the feed has every acknowledged change.

        A reader of the streams after this call sees all of them. Systems that have published
        nothing yet, or whose writers are uncertain (`mediator.changes.writers`), are left out.
        """

    async def tick(self) -> int:
        """Return the next tick, a number for `relayed_until`.

        Ticks are monotonic over all feeds: changes acknowledged before this call are below the
        number, independently of any machine's clock.
        """

    async def read(
        self, database: str, partition: int, after: str, limit: int
    ) -> list[tuple[str, Change]]:
        """Return up to `limit` changes of a partition after a stream id, with their stream ids.

        Raises:
            PositionGone: Changes after it are no longer kept.
        """

    async def events(self, database: str, partition: int, after: str, limit: int) -> list[Event]:
        """Read changes like `read`, as events for subscribers."""

    async def follow(
        self, database: str, after: Sequence[str], limit: int, wait_s: float
    ) -> list[Event]:
        """Wait up to `wait_s` for events after a stream id in each partition."""

    async def last(self, database: str, partition: int) -> str:
        """Return the stream id of the newest change ever appended to a partition."""

    async def oldest(self, database: str, partition: int) -> str:
        """Return the stream id after which every change is kept."""

    async def generation(self, database: str) -> str:
        """Return the id of the generation; positions of other generations are gone."""

    async def start_generation(self, database: str) -> None:
        """Start a new generation: changes are missing that can no longer be appended."""

    async def trim(self, database: str) -> None:
        """Remove changes beyond the retention."""

    async def clear(self, database: str) -> None:
        """Remove the feed of a dropped database."""
