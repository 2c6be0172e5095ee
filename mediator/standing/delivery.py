"""Results that are appended to an event stream, each once, in parts for which it has room.

What is about to be appended is written down before, and that it was done after. A holder that finds
something begun appends the very same results under the same id again, which the stream knows if it
has them (for an hour: a longer outage at this very moment may double them).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

import orjson

from mediator.base.errors import TooManyRequests
from mediator.base.lease import Lease
from mediator.changes.feed import PositionGone
from mediator.event_streams.port import EventStream, EventStreams, NewTuple, StreamKey
from mediator.standing.query import Destination, StandingQuery
from mediator.standing.result_objects import values_of
from mediator.standing.results import Delivery, QueryKey, StandingResults, StoredResult

__all__ = ["Deliveries", "Undeliverable"]

_AT_ONCE: Final = 500
_BYTES: Final = 2**20
"""After these a part has no more results: far less than a stream keeps."""


class Undeliverable(Exception):
    """Results of this query cannot be delivered any more."""

    def __init__(self, query: str, detail: str) -> None:
        super().__init__(detail)
        self.query = query
        self.detail = detail


@dataclass(eq=False)
class Deliveries:
    """Appends the results of the queries of one database to the streams that they go to."""

    _streams: EventStreams
    _results: StandingResults
    _database: str
    _lease: Lease
    _at: dict[str, Delivery] = field(default_factory=dict, init=False)

    async def open(self) -> None:
        """Continue where the last holder has ended."""
        self._at = await self._results.deliveries(self._database)

    async def deliver(
        self, queries: Mapping[str, StandingQuery], streams: Mapping[str, EventStream]
    ) -> None:
        """Append all that is due, as far as streams take it.

        Args:
            queries: By id.
            streams: Of the database, by name.

        Raises:
            NotFound: A stream is gone, or is another one by now.
            Undeliverable: Results were removed that a stream did not take in time.
        """
        for id_, query in queries.items():
            if query.into is not None and query.into.target.kind == "stream":
                stream = streams[query.into.target.name]
                try:
                    while await self._deliver(QueryKey(self._database, id_), query.into, stream):
                        pass
                except PositionGone:
                    detail = (
                        f"The stream {stream.name} takes results too slowly: some were removed"
                        " before it had room. Declare one that keeps more tuples, or keeps them for"
                        " less time, and create the query again."
                    )
                    raise Undeliverable(id_, detail) from None

    async def _deliver(self, key: QueryKey, into: Destination, stream: EventStream) -> bool:
        at = self._at.get(key.query, Delivery())
        # What was begun stays as it is: it may have been appended.
        due = await self._results.results(key, at.done, at.until - at.done or _AT_ONCE)
        if not due:
            return False
        tuples = [_tuple(each, into) for each in due]
        name = StreamKey(key.database, stream.name)
        if at.until == at.done:
            tuples = tuples[: min(await self._room(name, stream), _within(tuples))]
        last = at.done + len(tuples)
        if at.until != last:
            await self._note(key, Delivery(at.done, last))
        try:
            await self._streams.append_once(
                name, tuples, f"{key.query}:{last}", str(at.done), stream
            )
        except TooManyRequests:
            return False  # it is full, or its reader is behind: the same ones again, later
        await self._note(key, Delivery(last, last))
        return True

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
