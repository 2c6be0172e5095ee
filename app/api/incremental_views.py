"""``/v1/{database}/incremental-views``: views, their results, and how these change."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

import orjson

from app.api.models.views import DeltasParameters
from app.api.resources import Directory
from app.api.responses import JSON_TYPE, NO_STORE, answer_events
from app.api.routed_request import RoutedRequest
from app.http.jsonbody import parse_json
from app.http.message import Headers, Response, disconnected, forbid_body, read_body
from app.http.negotiation import EVENT_STREAM, JSON, accepts_by_name
from app.http.paths import parse_query
from app.http.validation import parse_parameters
from mediator.base.errors import Conflict, Invalid, Location, NotFound, Unavailable
from mediator.changes.feed import PositionGone
from mediator.routing.model import DatabaseRoute
from mediator.views.parser import parse_view
from mediator.views.results import BUILDING, STOPPED, StoredDelta, StoredView, ViewState
from mediator.views.service import IncrementalViews, view_document

__all__ = ["IncrementalViewRoutes"]

_NO_PARAMETERS: Final = frozenset[str]()
_LARGEST_VIEW: Final = 2**16
"""Bytes of a view: its holder keeps it in memory."""

_DELTA: Final = re.compile(r"[0-9]{1,16}-[0-9]{1,16}", re.ASCII)
_BLOCK_S: Final = 1.0
_HEARTBEAT_S: Final = 15.0
_MOST_FOLLOWERS: Final = 200
"""Requests that wait for deltas at the same time: each of them occupies a connection to Redis."""


@dataclass(eq=False)
class IncrementalViewRoutes:
    """The routes of incremental views.

    Who asks for a view has to see all objects of each class that it reads, and what they were.
    """

    _directory: Directory
    _views: IncrementalViews | None
    _limit: int
    _followers: int = field(default=0, init=False)

    async def post(self, routed: RoutedRequest) -> Response:
        """Create a view."""
        views = self._service()
        routed.media_type(JSON)
        parse_query(routed.request.query, _NO_PARAMETERS)
        body = parse_json(await read_body(routed.request, min(_LARGEST_VIEW, self._limit)))
        database = await self._directory.database(routed.database)
        view = parse_view(body, database.schema)
        stored = StoredView(view.document, tuple(sorted(view.class_names)), ViewState(BUILDING))
        _require(routed, stored)
        id_ = await views.create(database, view)
        location = f"/v1/{routed.database}/incremental-views/{id_}".encode()
        return _answer(201, _report(id_, stored), [(b"location", location)])

    async def get(self, routed: RoutedRequest) -> Response:
        _, _, stored = await self._find(routed)
        return _answer(200, _report(routed.id, stored))

    async def delete(self, routed: RoutedRequest) -> Response:
        views, database, _ = await self._find(routed)
        await views.drop(database, routed.id)
        return Response(204, [NO_STORE])

    async def result(self, routed: RoutedRequest) -> Response:
        views, database, stored = await self._find(routed)
        _refuse_stopped(stored)
        result = await views.result(database, routed.id)
        items = b",".join(
            b'{"row":%b,"count":%d}' % (row, count) for row, count in result.rows.items()
        )
        position, delta = result.position.encode(), result.delta.encode()
        body = b'{"items":[%b],"position":"%b","delta":"%b"}' % (items, position, delta)
        return Response(200, [JSON_TYPE, NO_STORE], body)

    async def deltas(self, routed: RoutedRequest) -> Response:
        """Answer deltas: as server-sent events, or by long polling."""
        parameters = parse_parameters(DeltasParameters, routed.request.query)
        views, database, stored = await self._find(routed, with_parameters=True)
        _refuse_stopped(stored)
        after = parameters.after
        if last := routed.request.headers.get(b"last-event-id"):
            after = _delta_id(last)
        if after is None:
            after = await views.last_delta(database, routed.id)
        # A delta that is gone is noticed before a status is sent.
        found = await views.deltas(database, routed.id, after, parameters.limit, 0)
        if self._followers >= _MOST_FOLLOWERS:
            raise Unavailable("Too many clients follow views.", system="coordination")
        if accepts_by_name(routed.request.headers.get(b"accept", ""), EVENT_STREAM):
            return answer_events(self._events(views, database, routed, after))
        if not found and parameters.wait:
            found = await self._wait(views, database, routed, after, parameters)
        page = b",".join(map(_page_item, found))
        last_id = (found[-1].id if found else after).encode()
        return Response(
            200, [JSON_TYPE, NO_STORE], b'{"deltas":[%b],"delta":"%b"}' % (page, last_id)
        )

    async def _wait(
        self,
        views: IncrementalViews,
        database: DatabaseRoute,
        routed: RoutedRequest,
        after: str,
        parameters: DeltasParameters,
    ) -> list[StoredDelta]:
        until = monotonic() + parameters.wait
        self._followers += 1
        try:
            while (left_s := until - monotonic()) > 0 and not views.ended:
                wait_s = min(left_s, _BLOCK_S)
                found = await views.deltas(database, routed.id, after, parameters.limit, wait_s)
                if found:
                    return found
        finally:
            self._followers -= 1
        return []

    async def _events(
        self, views: IncrementalViews, database: DatabaseRoute, routed: RoutedRequest, after: str
    ) -> AsyncIterator[bytes]:
        # Counted here: a generator that never starts would not reach its `finally`.
        self._followers += 1
        gone = asyncio.create_task(disconnected(routed.request))
        sent_at = monotonic()
        try:
            # So that a client that loses the connection before any delta resumes from here.
            yield _id_event(after)
            while not (gone.done() or views.ended):
                found = await views.deltas(database, routed.id, after, 100, _BLOCK_S)
                stored = await views.find(database, routed.id)
                if not _may_see(routed, stored):
                    return
                chunk = b"".join(map(_event, found))
                after = found[-1].id if found else after
                if not found and stored.state.name == STOPPED:
                    yield b"event: stopped\ndata: %b\n\n" % orjson.dumps(
                        {"detail": stored.state.detail}
                    )
                    return
                if not chunk and monotonic() - sent_at >= _HEARTBEAT_S:
                    chunk = b": heartbeat\n" + _id_event(after)
                if chunk:
                    yield chunk
                    sent_at = monotonic()
        except (PositionGone, NotFound, Unavailable):
            return  # the client comes again, from what it has seen, and gets a problem
        finally:
            self._followers -= 1
            gone.cancel()

    async def list(self, routed: RoutedRequest) -> Response:
        views, database = self._service(), await self._database(routed)
        found = await views.of_database(database)
        return _answer(200, {"items": [view_document(*each) for each in found.items()]})

    def _service(self) -> IncrementalViews:
        if self._views is None:
            detail = "There are no incremental views here: PORTOLAN_COORDINATION_URL is not set."
            raise Unavailable(detail, system="coordination", retry_after_s=60)
        return self._views

    async def _database(self, routed: RoutedRequest) -> DatabaseRoute:
        forbid_body(routed.request)
        parse_query(routed.request.query, _NO_PARAMETERS)
        return await self._directory.database(routed.database)

    async def _find(
        self, routed: RoutedRequest, *, with_parameters: bool = False
    ) -> tuple[IncrementalViews, DatabaseRoute, StoredView]:
        """Find the view of a request without a body, whose sender may see it."""
        forbid_body(routed.request)
        if not with_parameters:
            parse_query(routed.request.query, _NO_PARAMETERS)
        views, database = self._service(), await self._directory.database(routed.database)
        stored = await views.find(database, routed.id)
        _require(routed, stored)
        return views, database, stored


def _require(routed: RoutedRequest, stored: StoredView) -> None:
    for name in stored.class_names:
        routed.access.require_changes(routed.database, name)


def _may_see(routed: RoutedRequest, stored: StoredView) -> bool:
    return all(
        routed.access.may_read_all(routed.database, name, by_anybody=False)
        for name in stored.class_names
    )


def _refuse_stopped(stored: StoredView) -> None:
    if stored.state.name == STOPPED:
        raise Conflict(f"The view was stopped. {stored.state.detail}")


def _report(id_: str, stored: StoredView) -> dict[str, Any]:
    return {**view_document(id_, stored), "view": stored.document}


def _delta_id(text: str) -> str:
    if not _DELTA.fullmatch(text):
        locations = [Location("Last-Event-ID", "must be the id of a delta")]
        raise Invalid("This is no id of a delta.", locations=locations)
    return text


def _page_item(delta: StoredDelta) -> bytes:
    parts = (delta.id.encode(), delta.position.encode(), delta.rows)
    return b'{"id":"%b","position":"%b","rows":%b}' % parts


def _event(delta: StoredDelta) -> bytes:
    return b"id: %b\nevent: delta\ndata: %b\n\n" % (delta.id.encode(), _page_item(delta))


def _id_event(delta: str) -> bytes:
    """Send the id without an event (HTML, section 9.2.6: no data, no event)."""
    return b"id: %b\n\n" % delta.encode()


def _answer(status: int, document: Any, headers: Headers | None = None) -> Response:
    return Response(status, [JSON_TYPE, NO_STORE, *(headers or ())], orjson.dumps(document))
