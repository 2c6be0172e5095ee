"""The port of what replicas share of standing queries: definitions, the log of batches, results.

A *batch* is what the holder of a database has taken of all its streams at once. The tuples of a
batch, how far each stream was taken with it, and its results are published in one step, which
compares the lease and counts batches. So each batch is published once, and its results with it.
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
    "MOST_RESULTS",
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

MOST_RESULTS: Final = 10_000
"""Results of a query that are kept."""

BUILDING, READY, PAUSED, RESUMING, STOPPED = "building", "ready", "paused", "resuming", "stopped"

BEHIND: Final = frozenset({PAUSED, RESUMING})
"""States of queries that the others are ahead of."""


class QueryKey(NamedTuple):
    """A standing query: the id of its database, which no other has had, and its own."""

    database: str
    query: str


class QueryState(NamedTuple):
    """The state of a query.

    Attributes:
        name: `building`, `ready`, `paused`, `resuming` or `stopped`.
        detail: Why it was stopped.
        numbers: How far a query has got that is `BEHIND`: the number of the last tuple that was
            executed, by relation.
    """

    name: str = BUILDING
    detail: str = ""
    numbers: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """A query.

    Attributes:
        document: As its owner sent it.
        relations: Those that it reads.
        state: Its state.
        into: The id of the event stream that its results go to: a later one of this name is
            another; None: they go to none.
        administered: Classes of the query that who created it could administer.
        created: When, by the clock of a replica; `EPOCH`: it was not written down.
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
    """A tuple, with its number in its stream; `versions` are those of an object of a class."""

    number: int
    versions: str = ""


class Offset(NamedTuple):
    """How far a stream was taken.

    Attributes:
        number: That of the last tuple that was taken.
        since: The first batch with tuples of it: in earlier ones may be those of a former reader.
        reach_s: How far before the latest time the log has every tuple that was not late, in
            seconds; 0 while the first history of the stream is not complete.
    """

    number: int
    since: int
    reach_s: float


@dataclass(frozen=True, slots=True)
class Progress:
    """What is taken of the streams of a database.

    Attributes:
        latest_s: The latest time of all tuples that were not late; minus infinity: there was none.
        offsets: By relation.
        feed: The position up to which the feed was taken for classes; empty: none is read.
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
    """How far results were written to the stream or class that they go to.

    Attributes:
        done: The number of the last result that was.
        is_refused: Whether the class refuses the next one for good.
    """

    done: int = 0
    is_refused: bool = False


class LogEntry(NamedTuple):
    """The tuples of one relation in a batch of the log."""

    sequence: int
    relation: str


class LoggedBatch(NamedTuple):
    """The tuples of a batch that were not late, and are kept; `sequence` counts from 1."""

    sequence: int
    tuples: Sequence[LoggedTuple]


@dataclass(frozen=True, slots=True)
class Publication:
    """A batch.

    Attributes:
        tuples: Those that were not late.
        progress: With this batch.
        keep_from: The first batch of which something is kept.
        forgotten: Entries of the log that are not kept, though later than that.
        states: The next states of queries whose state changes, by id.
        results: New results as JSON, in their order, by the id of their query.
    """

    tuples: Sequence[LoggedTuple]
    progress: Progress
    keep_from: int
    forgotten: Sequence[LogEntry] = ()
    states: Mapping[str, QueryState] = field(default_factory=dict)
    results: Mapping[str, Sequence[bytes]] = field(default_factory=dict)


class StoredResult(NamedTuple):
    """A result of a query, as JSON; an older version has written no digest."""

    number: int
    document: bytes
    digest: str = ""

    @property
    def position(self) -> ResultPosition:
        """The position after it."""
        return ResultPosition(self.number, self.digest)


class StandingResults(Protocol):
    """What is shared of all standing queries. Every method raises `Unavailable`."""

    async def put_query(self, key: QueryKey, query: StoredQuery, most: int) -> bool:
        """Write a query down; false if its database has `most` already."""

    async def databases(self) -> set[str]:
        """Return the databases that have standing queries, or had."""

    async def queries(self, database: str) -> dict[str, StoredQuery]:
        """Return the queries of a database by id."""

    async def query(self, key: QueryKey) -> StoredQuery | None:
        """Return a query; None: there is none."""

    async def drop_query(self, key: QueryKey) -> bool:
        """Remove a query with its results; false if there is none."""

    async def clear(self, database: str) -> None:
        """Remove all of a database that was dropped."""

    async def published(self, database: str) -> Published:
        """Return what the next batch has to follow."""

    def batches(self, database: str) -> AsyncIterator[LoggedBatch]:
        """Go through the batches that are kept, in their order."""

    async def publish(
        self, database: str, lease: Lease, sequence: int, publication: Publication
    ) -> None:
        """Publish the batch after `sequence`; it may be sent twice.

        Queries that were dropped meanwhile are left out.

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
            PositionGone: The next one is not kept any more, or there is no such position.
        """

    async def pause(self, key: QueryKey, pause: Pause) -> bool | None:
        """Ask for a pause.

        Returns:
            False if one had been asked for, and lasts as this one says now; None: there is no such
            query.
        """

    async def resume(self, key: QueryKey) -> bool:
        """End a pause; false if there is none."""

    async def end_pauses(self, database: str, before: int) -> None:
        """End the pauses by rules of versions before this one."""

    async def pauses(self, database: str) -> dict[str, Pause]:
        """Return the pauses that were asked for and last, by the id of their query."""

    async def deliveries(self, database: str) -> dict[str, Delivery]:
        """Return how far results were delivered, by the id of their query."""

    async def put_delivery(self, key: QueryKey, lease: Lease, delivery: Delivery) -> None:
        """Write down how far results were delivered; raises `LeaseLost`."""

    async def put_report(self, database: str, lease: Lease, report: bytes) -> None:
        """Write down what is executed, as JSON, if the lease is held."""

    async def report(self, database: str) -> bytes | None:
        """Return the last report; None: there was none yet."""
