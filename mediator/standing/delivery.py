"""Results that are appended to an event stream, each once, in parts for which it has room.

That a part was appended is written down afterwards. A holder that does not find it written down
appends a part that begins with the same result, of whatever size; the stream knows by the id of the
part (for an hour: a longer outage at this very moment may double results) that it has one already,
and says where that ends.
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
    MOST_RESULTS,
    Delivery,
    QueryKey,
    StandingResults,
    StoredResult,
)

__all__ = ["MOST_WAITING", "Deliveries"]

_AT_ONCE: Final = 500
MOST_WAITING: Final = MOST_RESULTS // 2
"""Results that may wait for the catalogue before batches do: only a limited number is kept."""

_ASK_AFTER_S: Final = 5.0
"""After which a catalogue that did not answer is asked again: a call to it may take as long."""

_REST_S: Final = 0.25
"""After which a stream that had no room is tried again."""

_BYTES: Final = 2**20
"""After these a part has no more results: far less than a stream keeps."""


@dataclass(eq=False)
class Deliveries:
    """Appends the results of the queries of one database to the streams that they go to.

    Attributes:
        is_held_up: Whether batches should wait: it is not known whether many results may go on.
    """

    _context: HolderContext
    _route: DatabaseRoute
    _lease: Lease
    is_held_up: bool = field(default=False, init=False)
    _at: dict[str, Delivery] = field(default_factory=dict, init=False)
    _rests: dict[str, float] = field(default_factory=dict, init=False)
    _asked_until: float = field(default=float("-inf"), init=False)

    async def open(self) -> None:
        """Continue where the last holder has ended."""
        self._at = await self._results.deliveries(self._route.id)

    @property
    def _results(self) -> StandingResults:
        return self._context.results

    @property
    def _streams(self) -> EventStreams:
        return self._context.streams

    async def deliver(
        self, queries: Mapping[str, StandingQuery], streams: Mapping[str, EventStream]
    ) -> None:
        """Append all that is due, as far as streams take it.

        Args:
            queries: By id.
            streams: Of the database, by name.

        Raises:
            NotFound: A stream is gone, or is another one by now.
            OutOfDate: The schema is another one by now.
            MustStop: Results were removed that a stream did not take in time.
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
        done, clock = self._at.get(key.query, Delivery()).done, self._context.clock
        if clock.monotonic() < self._rests.get(key.query, float("-inf")):
            return False
        due = await self._results.results(key, ResultPosition(done), _AT_ONCE)
        if not due:
            return False
        if query.reads_classes and not await self.is_known_to_be_current():
            newest = await self._results.last_result(key)
            self.is_held_up |= newest.number - done > MOST_WAITING
            return False
        assert query.into is not None
        tuples = [_tuple(each, query.into) for each in due]
        room = await self._room(StreamKey(key.database, stream.name), stream)
        try:
            last = await self._append(key, done, tuples[: min(room, _within(tuples))], stream)
        except TooManyRequests:
            # It is full, or its reader is behind: what there is room for, later.
            self._rests[key.query] = clock.monotonic() + _REST_S
            return False
        await self._note(key, Delivery(last))
        return True

    async def is_known_to_be_current(self) -> bool:
        """Whether the schema is still the one that the queries were read by; raises `OutOfDate`.

        Objects that results are of may have got owners before this process knows of it. If they
        have none after the results were read, they had none when the objects were.
        """
        if self._context.clock.monotonic() < self._asked_until:
            return False
        try:
            if await is_outdated(self._context.plane, self._route):
                raise OutOfDate
        except Unavailable:
            self._asked_until = self._context.clock.monotonic() + _ASK_AFTER_S
            return False
        return True

    async def _append(
        self, key: QueryKey, done: int, tuples: Sequence[NewTuple], stream: EventStream
    ) -> int:
        """Append the results after `done`; return the number of the last one that is there.

        A call may arrive long after its caller gave it up. So all parts that begin with the same
        result have one id, of which the stream takes one part, and the fingerprint is where it
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
        """Return how many tuples fit; one is always tried, as that removes what is too old."""
        report = await self._streams.report(key)
        return max(1, stream.most_tuples - (report.last - report.first + 1))

    async def _note(self, key: QueryKey, delivery: Delivery) -> None:
        await self._results.put_delivery(key, self._lease, delivery)
        self._at[key.query] = delivery


def _tuple(result: StoredResult, into: Destination) -> NewTuple:
    time_s, values = values_of(result, into)
    return NewTuple(time_s, orjson.dumps(values))


def _within(tuples: list[NewTuple]) -> int:
    """Return how many tuples a part has, by their size; one at least."""
    sizes = accumulate(len(each.values) for each in tuples)
    return next((count for count, size in enumerate(sizes, 1) if size >= _BYTES), len(tuples))
