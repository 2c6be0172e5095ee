"""The port of event streams: declared by an application, appended to, and read from a number on.

Tuples of a stream are numbered 1, 2, 3, … without a gap, in the order in which they were appended.
So a number is an exact offset, and a range of numbers can be divided among readers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

__all__ = ["EventStream", "EventStreams", "NewTuple", "StoredTuple", "StreamKey"]


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
    """

    name: str
    attributes: frozenset[str]
    retention_s: float
    most_tuples: int


class NewTuple(NamedTuple):
    """A tuple to be appended.

    Attributes:
        time_s: When it happened, by its sender's account, in seconds since 1970.
        values: Scalars by attribute.
    """

    time_s: float
    values: Mapping[str, Any]


class StoredTuple(NamedTuple):
    """A tuple, with its number."""

    number: int
    time_s: float
    values: Mapping[str, Any]


class EventStreams(Protocol):
    """The streams of all databases. Every method raises `Unavailable`."""

    async def declare(self, key: StreamKey, stream: EventStream, most: int) -> bool:
        """Write a stream down; false if its name is taken.

        Raises:
            Conflict: The database has `most` streams already.
        """

    async def of_database(self, database: str) -> dict[str, EventStream]:
        """Return the streams of a database by name."""

    async def find(self, key: StreamKey) -> EventStream | None:
        """Return a stream; None: there is none."""

    async def drop(self, key: StreamKey) -> bool:
        """Remove a stream with its tuples; false if there is none."""

    async def clear(self, database: str) -> None:
        """Remove all streams of a database that was dropped."""

    async def append(self, key: StreamKey, tuples: Sequence[NewTuple]) -> int:
        """Append tuples, all or none; return the number of the last.

        Raises:
            NotFound: There is no such stream.
            TooManyRequests: It is full, or a consumer is too far behind; nothing was appended.
        """

    async def last(self, key: StreamKey) -> int:
        """Return the number of the last tuple; 0 if there was none yet."""

    async def read(
        self, key: StreamKey, after: int, limit: int, wait_s: float = 0.0
    ) -> list[StoredTuple]:
        """Return tuples after a number, in their order, waiting for the first of them.

        Raises:
            PositionGone: The next one after that number is not kept any more.
        """

    async def consumed(self, key: StreamKey, consumer: str, number: int) -> None:
        """Note how far a consumer has got, which keeps a stream from running away from it.

        A consumer that has not said so for a minute does not count.
        """
