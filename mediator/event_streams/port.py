"""The port of event streams: declared by an application, appended to, and read from a number on.

Tuples of a stream are numbered 1, 2, 3, … without a gap, in the order in which they were appended.
So a number is an exact offset, and a range of numbers can be divided among readers. A stream whose
name an earlier one had begins after the numbers of that one.
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
    """An event stream: the id of its database, which no other has had, and its name."""

    database: str
    stream: str


@dataclass(frozen=True, slots=True)
class EventStream:
    """A stream.

    Attributes:
        attributes: The names that tuples may have.
        retention_s: For how long tuples are kept.
        most_tuples: Tuples that are kept at most, and so how many may arrive within that time.
        types: The types of those attributes that have one.
        id: What no other stream has, also not an earlier one of this name.
    """

    name: str
    attributes: frozenset[str]
    retention_s: float
    most_tuples: int
    types: Mapping[str, str] = field(default_factory=dict)
    id: str = field(default_factory=lambda: uuid4().hex, compare=False)


class NewTuple(NamedTuple):
    """A tuple to be appended.

    Attributes:
        time_s: When it happened, by its sender's account, in seconds since 1970.
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
    """Tuples that were read of a stream.

    Attributes:
        tuples: In their order.
        last: The number of the last tuple that the stream had then: more follow if these end
            before it.
    """

    tuples: list[StoredTuple]
    last: int


class TupleRange(NamedTuple):
    """Tuples that follow each other.

    Attributes:
        first: The number of the first.
        last: The number of the last.
        latest_s: A time that none of them is later than, in seconds since 1970: at most a second
            after the latest of them, or infinity if nothing is known.
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
    """What there is of a stream.

    Attributes:
        first: The number of the oldest tuple that is kept; `last` + 1: none is.
        last: The number of the last tuple; that before the first one, if there was none yet.
        size: The bytes of the tuples that are kept, as JSON.
        rate: Tuples appended in a second: an average that forgets within some minutes.
        consumers: The number up to which each consumer has got, of those that count.
    """

    first: int
    last: int
    size: int
    rate: float
    consumers: Mapping[str, int]

    @property
    def furthest_behind(self) -> int:
        """Tuples by which the slowest consumer is behind; 0 if there is none."""
        return max(0, self.last - min(self.consumers.values(), default=self.last))


class EventStreams(Protocol):
    """The streams of all databases. Every method raises `Unavailable`."""

    async def declare(self, key: StreamKey, stream: EventStream, most: int) -> bool:
        """Write a stream down; false if its name is taken.

        Raises:
            Conflict: The database has `most` streams already.
        """

    async def databases(self, among: Collection[str]) -> set[str]:
        """Return those of some databases that have, or had, streams."""

    async def of_database(self, database: str) -> dict[str, EventStream]:
        """Return the streams of a database by name."""

    async def find(self, key: StreamKey) -> EventStream | None:
        """Return a stream; None: there is none."""

    async def drop(self, key: StreamKey) -> bool:
        """Remove a stream with its tuples; false if there is none."""

    async def clear(self, database: str) -> None:
        """Remove all streams of a database that was dropped."""

    async def append(
        self, key: StreamKey, tuples: Sequence[NewTuple], declared: EventStream | None = None
    ) -> int:
        """Append tuples, all or none; return the number of the last.

        Args:
            declared: The stream as the tuples were checked; None: whatever it is.

        Raises:
            NotFound: There is no such stream, or another one by now.
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
            IdempotencyReused: What was appended under the id had another fingerprint, which the
                error has.
            NotFound: As `append`.
            TooManyRequests: As `append`.
        """

    async def last(self, key: StreamKey) -> int:
        """Return the number of the last tuple; 0 if there was none yet."""

    async def report(self, key: StreamKey) -> StreamReport:
        """Return what there is of a stream; raises `NotFound`."""

    async def ranges(self, key: StreamKey) -> list[TupleRange]:
        """Return ranges of all tuples that are kept, in their order; raises `NotFound`.

        What is wanted of some times is found by them, as tuples have any order of times.
        """

    async def read(
        self, key: StreamKey, after: int | None, limit: int, wait_s: float = 0.0
    ) -> TuplePage:
        """Return tuples after a number, waiting for the first of them; None: from the oldest on.

        They may be fewer than the limit while there are more.

        Raises:
            NotFound: There is no such stream.
            PositionGone: The next one after that number is not kept any more.
        """

    async def consumed(self, key: StreamKey, consumer: str, number: int) -> None:
        """Note how far a consumer has got, which keeps a stream from running away from it.

        A consumer that has not said so for a minute does not count.
        """
