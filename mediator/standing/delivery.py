"""Deliveries of results to an event stream, each once, in chunks for which it has room.

An append is recorded afterwards. A holder that finds no record appends a chunk of any size that
starts with the same result. By the chunk's id, the stream knows for an hour that it already has
one, and returns where that ends; a longer outage at this very moment may duplicate results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

import orjson

from mediator.base.errors import IdempotencyReused, TooManyRequests, Unavailable
from mediator.base.lease import Lease
from mediator.changes.feed import PositionGone
from mediator.data_plane.port import is_outdated
from mediator.event_streams.port import EventStream, EventStreams, NewTuple, StreamKey
from mediator.model.result_position import ResultPosition
from mediator.routing.model import DatabaseRoute
from mediator.standing.context import HolderContext, MustStop, OutOfDate
from mediator.standing.query import Destination, StandingQuery
from mediator.standing.result_objects import values_of
from mediator.standing.results import (
    MAX_RESULTS,
    Delivery,
    QueryKey,
    StandingResults,
    StoredResult,
)

__all__ = ["MAX_WAITING", "Deliveries"]

_BATCH_RESULTS: Final = 500
MAX_WAITING: Final = MAX_RESULTS // 2
"""Results that can wait for the catalogue before batches wait: only so many are kept."""

_RETRY_CATALOGUE_S: Final = 5.0
"""Delay before an unavailable catalogue is called again: a call may take as long."""

_RETRY_STREAM_S: Final = 0.25
"""Delay before a stream without room is tried again."""

_CHUNK_BYTES: Final = 2**20
"""Size after which a chunk ends: far less than a stream keeps."""


@dataclass(eq=False)
class Deliveries:
    """Appends the results of the queries of one database to the streams that they go to.

    Attributes:
        is_held_up: Whether batches should wait: it is unknown whether many results may be
            delivered.
    """

    _context: HolderContext
    _route: DatabaseRoute
    _lease: Lease
    is_held_up: bool = field(default=False, init=False)
    _progress: dict[str, Delivery] = field(default_factory=dict, init=False)
    _retry_at: dict[str, float] = field(default_factory=dict, init=False)
    _catalogue_retry_at: float = field(default=float("-inf"), init=False)

    async def open(self) -> None:
        """Continue where the last holder ended."""
        self._progress = await self._results.deliveries(self._route.id)

    @property
    def _results(self) -> StandingResults:
        return self._context.results

    @property
    def _streams(self) -> EventStreams:
        return self._context.streams

    async def deliver(
        self, queries: Mapping[str, StandingQuery], streams: Mapping[str, EventStream]
    ) -> None:
        """Append all due results for which streams have room.

        Args:
            queries: By id.
            streams: The database's streams, by name.

        Raises:
            NotFound: A stream is gone or was replaced.
            OutOfDate: The schema has changed.
            MustStop: Results were removed before a stream took them.
        """
        self.is_held_up = False
        for id_, query in queries.items():
            if query.into is not None and query.into.target.kind == "stream":
                stream = streams[query.into.target.name]
                try:
                    while await self._deliver(QueryKey(self._route.id, id_), query, stream):
                        pass
                except PositionGone:
                    detail = (
                        f"The stream {stream.name} takes results too slowly: some were removed"
                        " before it had room. Declare one that keeps more tuples, or keeps them for"
                        " less time, and create the query again."
                    )
                    raise MustStop([id_], detail) from None

    async def _deliver(self, key: QueryKey, query: StandingQuery, stream: EventStream) -> bool:
        done, clock = self._progress.get(key.query, Delivery()).done, self._context.clock
        if clock.monotonic() < self._retry_at.get(key.query, float("-inf")):
            return False
        due = await self._results.results(key, ResultPosition(done), _BATCH_RESULTS)
        if not due:
            return False
        if query.reads_classes and not await self.is_known_to_be_current():
            newest = await self._results.last_result(key)
            self.is_held_up |= newest.number - done > MAX_WAITING
            return False
        assert query.into is not None
        tuples = [_tuple(result, query.into) for result in due]
        room = await self._room(StreamKey(key.database, stream.name), stream)
        try:
            last = await self._append(key, done, tuples[: min(room, _chunk_length(tuples))], stream)
        except TooManyRequests:
            # It is full, or its reader is behind: retry later.
            self._retry_at[key.query] = clock.monotonic() + _RETRY_STREAM_S
            return False
        await self._note(key, Delivery(last))
        return True

    async def is_known_to_be_current(self) -> bool:
        """Whether the schema is known to be unchanged; raises `OutOfDate` if it has changed.

        Source objects may have got owners before this process knows of it. If they have none after
        the results were read, they had none when the objects were read.
        """
        if self._context.clock.monotonic() < self._catalogue_retry_at:
            return False
        try:
            if await is_outdated(self._context.plane, self._route):
                raise OutOfDate
        except Unavailable:
            self._catalogue_retry_at = self._context.clock.monotonic() + _RETRY_CATALOGUE_S
            return False
        return True

    async def _append(
        self, key: QueryKey, done: int, tuples: Sequence[NewTuple], stream: EventStream
    ) -> int:
        """Append the results after `done`; return the number of the last one in the stream.

        A call may arrive long after its caller gave up. All chunks that start with the same result
        therefore have one id, for which the stream accepts one chunk; the fingerprint is where it
        ends.
        """
        name, last = StreamKey(key.database, stream.name), done + len(tuples)
        id_ = f"{key.query}:after:{done}"
        try:
            await self._streams.append_once(name, tuples, id_, str(last), stream)
        except IdempotencyReused as error:
            return int(error.fingerprint)
        return last

    async def _room(self, key: StreamKey, stream: EventStream) -> int:
        """Return how many tuples fit, at least one: an append removes tuples that are too old."""
        report = await self._streams.report(key)
        return max(1, stream.most_tuples - (report.last - report.first + 1))

    async def _note(self, key: QueryKey, delivery: Delivery) -> None:
        await self._results.put_delivery(key, self._lease, delivery)
        self._progress[key.query] = delivery


def _tuple(result: StoredResult, into: Destination) -> NewTuple:
    time_s, values = values_of(result, into)
    return NewTuple(time_s, orjson.dumps(values))


def _chunk_length(tuples: list[NewTuple]) -> int:
    """Return how many tuples a chunk has, by their size; at least one."""
    sizes = accumulate(len(item.values) for item in tuples)
    return next((count for count, size in enumerate(sizes, 1) if size >= _CHUNK_BYTES), len(tuples))
