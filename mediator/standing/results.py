"""The port of the shared state of standing queries: definitions, the log of batches, results.

A *batch* has the tuples that the holder of a database takes from all its streams at once. Its
tuples, the progress of each stream, and its results are published in one step, which compares the
lease and counts batches. Each batch is therefore published once, with its results.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from mediator.base.clock import EPOCH
from mediator.base.lease import Lease
from mediator.model.pause import Pause
from mediator.model.result_position import ResultPosition
from mediator.standing.query import names_of
from mediator.standing.state import StreamTuple

__all__ = [
    "BEHIND",
    "BUILDING",
    "MAX_RESULTS",
    "PAUSED",
    "READY",
    "RESUMING",
    "STOPPED",
    "Delivery",
    "LogEntry",
    "LoggedBatch",
    "LoggedTuple",
    "Offset",
    "Progress",
    "Publication",
    "Published",
    "QueryKey",
    "QueryState",
    "StandingResults",
    "StoredQuery",
    "StoredResult",
]

MAX_RESULTS: Final = 10_000
"""Maximum results kept of a query."""

BUILDING, READY, PAUSED, RESUMING, STOPPED = "building", "ready", "paused", "resuming", "stopped"

BEHIND: Final = frozenset({PAUSED, RESUMING})
"""States of queries that are behind the others."""


class QueryKey(NamedTuple):
    """A standing query: the id of its database, which is never reused, and its own id."""

    database: str
    query: str


class QueryState(NamedTuple):
    """The state of a query.

    Attributes:
        name: `building`, `ready`, `paused`, `resuming` or `stopped`.
        detail: Why it was stopped.
        numbers: The progress of a query that is `BEHIND`: the number of the last tuple executed, by
            relation.
    """

    name: str = BUILDING
    detail: str = ""
    numbers: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """A query.

    Attributes:
        document: The query as its owner sent it.
        relations: The relations that it reads.
        state: Its state.
        into: The id of the event stream that its results go to, not of a later stream of the same
            name; None: they go to no stream.
        administered: Classes of the query that its creator could administer.
        created: Time of creation, by a replica's clock; `EPOCH`: not recorded.
    """

    document: Mapping[str, Any]
    relations: tuple[str, ...]
    state: QueryState
    into: str | None = None
    administered: frozenset[str] = frozenset()
    created: datetime = EPOCH

    @property
    def class_names(self) -> list[str]:
        """The classes that it reads."""
        return names_of(self.relations, "class")

    @property
    def stream_names(self) -> list[str]:
        """The event streams that it reads."""
        return names_of(self.relations, "stream")


@dataclass(frozen=True, slots=True)
class LoggedTuple(StreamTuple):
    """A tuple, with its number in its stream; `versions` are those of a class's object."""

    number: int
    versions: str = ""


class Offset(NamedTuple):
    """The progress of a stream.

    Attributes:
        number: The number of the last tuple taken.
        since: The first batch with its tuples: earlier batches may have tuples of a former reader.
        reach_s: How far before the latest time the log has every tuple that was not late, in
            seconds; 0 until the first history of the stream is complete.
    """

    number: int
    since: int
    reach_s: float


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of the streams of a database.

    Attributes:
        latest_s: The latest time of all tuples that were not late; minus infinity: none so far.
        offsets: By relation.
        feed: The position up to which the feed was taken for classes; empty: no class is read.
    """

    latest_s: float = float("-inf")
    offsets: Mapping[str, Offset] = field(default_factory=dict)
    feed: str = ""


class Published(NamedTuple):
    """How many batches were published, the revision of the definitions, and the progress."""

    sequence: int
    revision: int
    progress: Progress


class Delivery(NamedTuple):
    """How far results were written to their stream or class.

    Attributes:
        done: The number of the last result written.
        is_refused: Whether the class permanently refuses the next result.
    """

    done: int = 0
    is_refused: bool = False


class LogEntry(NamedTuple):
    """The tuples of one relation in a batch of the log."""

    sequence: int
    relation: str


class LoggedBatch(NamedTuple):
    """The kept tuples of a batch, which were not late; `sequence` counts from 1."""

    sequence: int
    tuples: Sequence[LoggedTuple]


@dataclass(frozen=True, slots=True)
class Publication:
    """A batch.

    Attributes:
        tuples: Tuples that were not late.
        progress: The progress after this batch.
        keep_from: The first batch with kept tuples.
        forgotten: Later entries of the log that are not kept.
        states: The next states of queries whose state changes, by id.
        results: New results as JSON, in order, by the id of their query.
    """

    tuples: Sequence[LoggedTuple]
    progress: Progress
    keep_from: int
    forgotten: Sequence[LogEntry] = ()
    states: Mapping[str, QueryState] = field(default_factory=dict)
    results: Mapping[str, Sequence[bytes]] = field(default_factory=dict)


class StoredResult(NamedTuple):
    """A result of a query, as JSON; older versions wrote no digest."""

    number: int
    document: bytes
    digest: str = ""

    @property
    def position(self) -> ResultPosition:
        """The position after this result."""
        return ResultPosition(self.number, self.digest)


class StandingResults(Protocol):
    """The shared state of all standing queries. Every method raises `Unavailable`."""

    async def put_query(self, key: QueryKey, query: StoredQuery, limit: int) -> bool:
        """Store a query; false if its database already has `limit`."""

    async def databases(self) -> set[str]:
        """Return the databases that have or had standing queries."""

    async def queries(self, database: str) -> dict[str, StoredQuery]:
        """Return the queries of a database by id."""

    async def query(self, key: QueryKey) -> StoredQuery | None:
        """Return a query, or None."""

    async def drop_query(self, key: QueryKey) -> bool:
        """Remove a query with its results; false if none exists."""

    async def clear(self, database: str) -> None:
        """Remove everything of a dropped database."""

    async def published(self, database: str) -> Published:
        """Return the state that the next batch must follow."""

    def batches(self, database: str) -> AsyncIterator[LoggedBatch]:
        """Yield the kept batches, in order."""

    async def publish(
        self, database: str, lease: Lease, sequence: int, publication: Publication
    ) -> None:
        """Publish the batch after `sequence`; it can be sent twice.

        Queries dropped meanwhile are skipped.

        Raises:
            LeaseLost: The lease is not held, or another batch was published since; nothing was
                done.
        """

    async def last_result(self, key: QueryKey) -> ResultPosition:
        """Return the position after the last result of a query."""

    async def results(
        self, key: QueryKey, after: ResultPosition, limit: int, wait_s: float = 0.0
    ) -> list[StoredResult]:
        """Return results after a position, waiting for the first of them.

        Raises:
            PositionGone: The next result is no longer kept, or the position does not exist.
        """

    async def pause(self, key: QueryKey, pause: Pause) -> bool | None:
        """Request a pause.

        Returns:
            False if the query was already paused: it now is until the end of this pause; None: no
            such query.
        """

    async def resume(self, key: QueryKey) -> bool:
        """End a pause; false if none exists."""

    async def end_pauses(self, database: str, before: int) -> None:
        """End the pauses by rules of versions before this one."""

    async def pauses(self, database: str) -> dict[str, Pause]:
        """Return the requested pauses that still last, by the id of their query."""

    async def deliveries(self, database: str) -> dict[str, Delivery]:
        """Return how far results were delivered, by the id of their query."""

    async def put_delivery(self, key: QueryKey, lease: Lease, delivery: Delivery) -> None:
        """Record how far results were delivered; raises `LeaseLost`."""

    async def put_report(self, database: str, lease: Lease, report: bytes) -> None:
        """Store a report of the execution, as JSON, if the lease is held."""

    async def report(self, database: str) -> bytes | None:
        """Return the last report; None: none so far."""
