"""Results of a standing query: as JSON, and as server-sent events (HTML, section 9.2)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Final

import orjson

from app.api.routed_request import RoutedRequest
from app.api.server_sent_events import POLL_S, events_of
from mediator.model.result_position import ResultPosition
from mediator.routing.model import DatabaseRoute
from mediator.standing.results import STOPPED, StoredQuery, StoredResult
from mediator.standing.service import StandingQueries

__all__ = ["ResultEvents", "shown"]

_RESULTS_AT_ONCE: Final = 100


@dataclass(eq=False)
class ResultEvents:
    """The results of a query after one, until it is stopped or may not be seen any more.

    Args:
        _require: Raises an error if the query may not be seen.
        _after: The position after the last result that was seen.
    """

    _queries: StandingQueries
    _database: DatabaseRoute
    _routed: RoutedRequest
    _require: Callable[[StoredQuery], None]
    _after: ResultPosition
    _has_ended: bool = field(default=False, init=False)

    def events(self) -> AsyncGenerator[bytes, None]:
        """Return events until the client has gone, the stream has ended, or the process ends."""
        return events_of(
            self._routed.request,
            self._next_events,
            lambda: str(self._after).encode(),
            lambda: not (self._has_ended or self._queries.ended),
        )

    async def _next_events(self) -> bytes:
        queries, database, id_ = self._queries, self._database, self._routed.id
        found = await queries.results(database, id_, self._after, _RESULTS_AT_ONCE, POLL_S)
        stored = await queries.find(database, id_)
        self._require(stored)
        if not found and stored.state.name == STOPPED:
            self._has_ended = True
            detail = orjson.dumps({"detail": stored.state.detail})
            return b"event: stopped\ndata: %b\n\n" % detail
        self._after = found[-1].position if found else self._after
        return b"".join(map(_event, found))


def shown(result: StoredResult) -> bytes:
    """Return a result as JSON, with its number."""
    return b'{"id":%d,%b' % (result.number, result.document.removeprefix(b"{"))


def _event(result: StoredResult) -> bytes:
    position = str(result.position).encode()
    return b"id: %b\nevent: result\ndata: %b\n\n" % (position, shown(result))
