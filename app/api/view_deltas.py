"""Deltas of an incremental view: as JSON, and as server-sent events (HTML, section 9.2)."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Final

import orjson

from app.api.routed_request import RoutedRequest
from app.api.server_sent_events import POLL_S, events_of
from mediator.base.errors import Invalid, Location
from mediator.routing.model import DatabaseRoute
from mediator.views.results import STOPPED, StoredDelta, StoredView
from mediator.views.service import IncrementalViews

__all__ = ["DeltaStream", "parse_delta", "shown"]

_DELTA: Final = re.compile(r"[0-9]{1,16}-[0-9]{1,16}", re.ASCII)
_DELTAS_AT_ONCE: Final = 100


@dataclass(eq=False)
class DeltaStream:
    """The deltas of a view after one, until it is stopped or may not be seen any more.

    Args:
        _require: Raises an error if the view may not be seen.
        _after: The id of the last delta that was seen.
    """

    _views: IncrementalViews
    _database: DatabaseRoute
    _routed: RoutedRequest
    _require: Callable[[StoredView], None]
    _after: str
    _has_ended: bool = field(default=False, init=False)

    def events(self) -> AsyncGenerator[bytes, None]:
        """Return events until the client has gone, the stream has ended, or the process ends."""
        return events_of(
            self._routed.request,
            self._next_events,
            self._position,
            lambda: not (self._has_ended or self._views.ended),
        )

    def _position(self) -> bytes:
        return self._after.encode()

    async def _next_events(self) -> bytes:
        views, database, id_ = self._views, self._database, self._routed.id
        found = await views.deltas(database, id_, self._after, _DELTAS_AT_ONCE, POLL_S)
        stored = await views.find(database, id_)
        self._require(stored)
        if not found and stored.state.name == STOPPED:
            self._has_ended = True
            detail = orjson.dumps({"detail": stored.state.detail})
            return b"event: stopped\ndata: %b\n\n" % detail
        self._after = found[-1].id if found else self._after
        return b"".join(map(_event, found))


def parse_delta(text: str) -> str:
    """Read Last-Event-ID; raises `Invalid`."""
    if not _DELTA.fullmatch(text):
        locations = [Location("Last-Event-ID", "must be the id of a delta")]
        raise Invalid("This is no id of a delta.", locations=locations)
    return text


def shown(delta: StoredDelta) -> bytes:
    """Return a delta as JSON."""
    parts = (delta.id.encode(), delta.position.encode(), delta.rows)
    return b'{"id":"%b","position":"%b","rows":%b}' % parts


def _event(delta: StoredDelta) -> bytes:
    return b"id: %b\nevent: delta\ndata: %b\n\n" % (delta.id.encode(), shown(delta))
