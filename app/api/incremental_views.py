"""``/v1/{database}/incremental-views``: views, their results, and the deltas of these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from app.api.dependents import find_dependent, refuse_content, require_objects, require_service
from app.api.following import EventFeed, Followers, Item, Page, last_event_id, stopped_event
from app.api.models.views import DELTA, DeltasParameters
from app.api.resources import Directory
from app.api.responses import JSON_TYPE, NO_STORE, answer_created, answer_json
from app.api.routed_request import RoutedRequest
from app.http.message import Response
from app.http.validation import parse_parameters
from mediator.base.errors import Conflict
from mediator.routing.model import DatabaseRoute
from mediator.views.parser import parse_view
from mediator.views.results import BUILDING, STOPPED, StoredDelta, StoredView, ViewState
from mediator.views.service import IncrementalViews, view_document

__all__ = ["IncrementalViewRoutes"]

_MAX_VIEW_BYTES: Final = 2**16
"""Bytes of a view: its holder keeps it in memory."""


@dataclass(eq=False)
class IncrementalViewRoutes:
    """The routes of incremental views.

    The sender must have the permission to read all objects of each class of the view, as they are
    and as they were since the view was created.
    """

    _directory: Directory
    _views: IncrementalViews | None
    _limit: int
    _followers: Followers

    async def post(self, routed: RoutedRequest) -> Response:
        """Create a view."""
        views = self._service()
        body, _ = await routed.json_body(min(_MAX_VIEW_BYTES, self._limit))
        database = await self._directory.database(routed.database)
        view = parse_view(body, database.schema)
        stored = StoredView(view.document, tuple(sorted(view.class_names)), ViewState(BUILDING))
        for name in stored.class_names:
            routed.access.require_changes(routed.database, name)
        id_ = await views.create(database, view)
        path = f"{routed.database}/incremental-views/{id_}"
        return answer_created(path, _report(id_, stored))

    async def get(self, routed: RoutedRequest) -> Response:
        _, _, stored = await self._find_any(routed)
        return answer_json(200, _report(routed.id, stored))

    async def delete(self, routed: RoutedRequest) -> Response:
        views, database, _ = await self._find_any(routed)
        await views.drop(database, routed.id)
        return Response(204, [NO_STORE])

    async def result(self, routed: RoutedRequest) -> Response:
        views, database, _ = await self._find(routed)
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
        views, database, _ = await self._find(routed, with_parameters=True)
        start = last_event_id(routed, DELTA) or parameters.after
        if start is None:
            start = await views.last_delta(database, routed.id)

        async def read(after: str, limit: int, wait_s: float) -> Page[str]:
            deltas = await views.deltas(database, routed.id, after, limit, wait_s)
            return Page([*map(_item, deltas)], deltas[-1].id if deltas else after)

        async def check() -> bytes:
            stored = await views.find(database, routed.id)
            require_objects(routed, stored)
            return stopped_event(stored.state.detail) if stored.state.name == STOPPED else b""

        feed = EventFeed("delta", ("deltas", "delta"), read, check)
        return await self._followers.answer(routed, feed, start, parameters.limit, parameters.wait)

    async def list(self, routed: RoutedRequest) -> Response:
        refuse_content(routed)
        database = await self._directory.database(routed.database)
        views = await self._service().of_database(database)
        return answer_json(200, {"items": [view_document(*entry) for entry in views.items()]})

    def _service(self) -> IncrementalViews:
        return require_service(self._views, "are no incremental views")

    async def _find(
        self, routed: RoutedRequest, *, with_parameters: bool = False
    ) -> tuple[IncrementalViews, DatabaseRoute, StoredView]:
        """Find a view that is not stopped, if the sender may see its result."""
        context = await self._find_any(routed, with_parameters=with_parameters)
        _, _, stored = context
        require_objects(routed, stored)
        if stored.state.name == STOPPED:
            raise Conflict(f"The view was stopped. {stored.state.detail}")
        return context

    async def _find_any(
        self, routed: RoutedRequest, *, with_parameters: bool = False
    ) -> tuple[IncrementalViews, DatabaseRoute, StoredView]:
        """Find the view of a bodiless request, if the sender may see its definition."""
        refuse_content(routed, with_parameters=with_parameters)
        views = self._service()
        return views, *await find_dependent(self._directory, routed, views.find)


def _item(delta: StoredDelta) -> Item:
    parts = (delta.id.encode(), delta.position.encode(), delta.rows)
    return Item(delta.id, b'{"id":"%b","position":"%b","rows":%b}' % parts)


def _report(id_: str, stored: StoredView) -> dict[str, Any]:
    return {**view_document(id_, stored), "view": stored.document}
