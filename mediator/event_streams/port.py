"""The port of event streams: declared by an application, appended to, and read by number.

Tuples of a stream are numbered 1, 2, 3, … without gaps, in the order of appending. A number is
therefore an exact offset, and a range of numbers can be divided among readers. A stream that reuses
a name continues after the numbers of the former stream.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

__all__ = [
    "Appended",
    "EventStream",
    "EventStreams",
    "NewTuple",
    "StoredTuple",
    "StreamKey",
    "StreamReport",
    "TuplePage",
    "TupleRange",
]


class StreamKey(NamedTuple):
    """An event stream: the id of its database, which is never reused, and its name."""

    database: str
    stream: str


@dataclass(frozen=True, slots=True)
class EventStream:
    """A stream.

    Attributes:
        attributes: The attribute names that tuples can have.
        retention_s: How long tuples are kept, in seconds.
        most_tuples: Maximum tuples kept, which bounds how many can arrive within that time.
        types: The types of typed attributes.
        id: Unique among all streams, including former streams of this name.
    """

    name: str
    attributes: frozenset[str]
    retention_s: float
    most_tuples: int
    types: Mapping[str, str] = field(default_factory=dict)
    id: str = field(default_factory=lambda: uuid4().hex, compare=False)


class NewTuple(NamedTuple):
    """A tuple to append.

    Attributes:
        time_s: Its event time, set by the sender, in seconds since 1970.
        values: Scalars by attribute, as JSON.
    """

    time_s: float
    values: bytes


class StoredTuple(NamedTuple):
    """A tuple, with its number."""

    number: int
    time_s: float
    values: Mapping[str, Any]


class TuplePage(NamedTuple):
    """Tuples read from a stream.

    Attributes:
        tuples: The tuples, in order.
        last: The number of the stream's last tuple at the time of the read: more follow if these
            end before it.
    """

    tuples: list[StoredTuple]
    last: int


class TupleRange(NamedTuple):
    """Consecutive tuples.

    Attributes:
        first: The number of the first tuple.
        last: The number of the last tuple.
        latest_s: Upper bound of their times, in seconds since 1970: at most a second after the
            latest of them, or infinity if unknown.
    """

    first: int
    last: int
    latest_s: float


class Appended(NamedTuple):
    """The number of the last tuple of a batch, and whether the batch was new."""

    last: int
    is_new: bool


@dataclass(frozen=True, slots=True)
class StreamReport:
    """The contents and consumers of a stream.

    Attributes:
        first: The number of the oldest kept tuple; `last` + 1: none is kept.
        last: The number of the last tuple; without one, the number before the first.
        size: Bytes of the kept tuples, as JSON.
        rate: Tuples appended a second: a moving average over some minutes.
        consumers: The number that each active consumer has reached.
    """

    first: int
    last: int
    size: int
    rate: float
    consumers: Mapping[str, int]

    @property
    def furthest_behind(self) -> int:
        """The lag of the slowest consumer, in tuples; 0 without consumers."""
        return max(0, self.last - min(self.consumers.values(), default=self.last))


class EventStreams(Protocol):
    """The streams of all databases. Every method raises `Unavailable`."""

    async def declare(self, key: StreamKey, stream: EventStream, limit: int) -> bool:
        """Store a stream; false if its name is taken.

        Raises:
            Conflict: The database already has `limit` streams.
        """

    async def databases(self, among: Collection[str]) -> set[str]:
        """Return the databases among these that have or had streams."""

    async def of_database(self, database: str) -> dict[str, EventStream]:
        """Return the streams of a database by name."""

    async def find(self, key: StreamKey) -> EventStream | None:
        """Return a stream, or None."""

    async def drop(self, key: StreamKey) -> bool:
        """Remove a stream with its tuples; false if none exists."""

    async def clear(self, database: str) -> None:
        """Remove all streams of a dropped database."""

    async def append(
        self, key: StreamKey, tuples: Sequence[NewTuple], declared: EventStream | None = None
    ) -> int:
        """Append tuples, all or none; return the number of the last.

        Args:
            declared: The stream for which the tuples were validated; None: any.

        Raises:
            NotFound: The stream does not exist or was replaced.
            TooManyRequests: It is full, or a consumer is too far behind; nothing was appended.
        """

    async def append_once(
        self,
        key: StreamKey,
        tuples: Sequence[NewTuple],
        id_: str,
        fingerprint: str,
        declared: EventStream | None = None,
    ) -> Appended:
        """Append a batch, unless it was appended under its id within the last hour.

        Raises:
            IdempotencyReused: The batch appended under the id had another fingerprint, which the
                error contains.
            NotFound: As `append`.
            TooManyRequests: As `append`.
        """

    async def last(self, key: StreamKey) -> int:
        """Return the number of the last tuple; 0: none yet."""

    async def report(self, key: StreamKey) -> StreamReport:
        """Return the report of a stream; raises `NotFound`."""

    async def ranges(self, key: StreamKey) -> list[TupleRange]:
        """Return ranges of all kept tuples, in order; raises `NotFound`.

        They locate tuples by time, as tuples can have any order of times.
        """

    async def read(
        self, key: StreamKey, after: int | None, limit: int, wait_s: float = 0.0
    ) -> TuplePage:
        """Return tuples after a number, waiting for the first of them; None: from the oldest on.

        It may return fewer than the limit although more exist.

        Raises:
            NotFound: There is no such stream.
            PositionGone: The next tuple after that number is no longer kept.
        """

    async def consumed(self, key: StreamKey, consumer: str, number: int) -> None:
        """Record the progress of a consumer: appends are refused while it is too far behind.

        A consumer without progress reports for a minute does not count.
        """
