"""Results that are appended to an event stream, each once.

What is about to be appended is written down before, and that it was done after. A holder that finds
something begun appends the very same results under the same id again, which the stream knows if it
has them (for an hour: a longer outage at this very moment may double them).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import orjson

from mediator.base.errors import NotFound, TooManyRequests
from mediator.base.lease import Lease
from mediator.changes.feed import PositionGone
from mediator.event_streams.port import EventStreams, NewTuple, StreamKey
from mediator.standing.query import Destination, StandingQuery
from mediator.standing.result_objects import values_of
from mediator.standing.results import Delivery, QueryKey, StandingResults

__all__ = ["Deliveries", "Undeliverable"]

_AT_ONCE: Final = 500


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

    async def deliver(self, queries: Mapping[str, StandingQuery]) -> None:
        """Append all that is due, as far as streams take it.

        Raises:
            Undeliverable: A stream is gone, or results were removed that it did not take in time.
        """
        for id_, query in queries.items():
            if query.into is not None and query.into.target.kind == "stream":
                try:
                    while await self._deliver(QueryKey(self._database, id_), query.into):
                        pass
                except (PositionGone, NotFound):
                    name = query.into.target.name
                    detail = f"The stream {name} is gone, or takes results too slowly."
                    raise Undeliverable(id_, detail) from None

    async def _deliver(self, key: QueryKey, into: Destination) -> bool:
        at = self._at.get(key.query, Delivery())
        limit = _AT_ONCE if at.until == at.done else at.until - at.done
        due = await self._results.results(key, at.done, limit)
        if not due:
            return False
        last = due[-1].number
        if at.until != last:
            await self._note(key, Delivery(at.done, last))
        stream = StreamKey(key.database, into.target.name)
        found = (values_of(each, into) for each in due)
        tuples = [NewTuple(time_s, orjson.dumps(values)) for time_s, values in found]
        try:
            await self._streams.append_once(stream, tuples, f"{key.query}:{last}", str(at.done))
        except TooManyRequests:
            return False  # it is full, or its reader is behind: the same ones again, later
        await self._note(key, Delivery(last, last))
        return True

    async def _note(self, key: QueryKey, delivery: Delivery) -> None:
        await self._results.put_delivery(key, self._lease, delivery)
        self._at[key.query] = delivery
