"""``GET /v1/{database}/{class}/export``: NDJSON out in the order of ids, resumable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import orjson

from app.api.models.transfer import ExportParameters
from app.api.options import DataOptions
from app.api.resources import ClassResource, Selection
from app.api.responses import NO_STORE, document_of
from app.api.routed_request import RoutedRequest
from app.http.message import Response, forbid_body
from app.http.negotiation import NDJSON
from app.http.validation import parse_parameters
from mediator.base.errors import TooManyRequests
from mediator.model.query import Position, Query
from mediator.query.execution import Answer
from mediator.routing.freshness import WHOLE
from mediator.schema.ids import check_id

__all__ = ["Exports"]


class Exports:
    """Exports classes."""

    def __init__(self, options: DataOptions) -> None:
        self._size = options.chunk_lines

    async def get(self, routed: RoutedRequest) -> Response:
        """Stream every object beyond the id `after`."""
        forbid_body(routed.request)
        parameters = parse_parameters(ExportParameters, routed.request.query)
        selection = routed.resource.select(parameters.fields)
        after = None if parameters.after is None else check_id(parameters.after, "after")
        routed.request.phases.end("parse")
        # The first page is read before the status is sent, so that its errors can be answered.
        first = await self._page(routed, selection, after)
        routed.request.phases.end("store")
        headers = [(b"content-type", NDJSON.encode()), NO_STORE]
        return Response(200, headers, chunks=self._stream(routed, selection, first))

    async def _page(self, routed: RoutedRequest, selection: Selection, after: str | None) -> Answer:
        resource = routed.resource
        query = Query(
            resource.database,
            resource.name,
            after=None if after is None else Position((), after),
            limit=self._size,
            fields=selection.fields,
        )
        return await routed.plane.query(query, WHOLE)

    async def _stream(
        self, routed: RoutedRequest, selection: Selection, page: Answer
    ) -> AsyncIterator[bytes]:
        resource = routed.resource
        while True:
            if page.items:
                yield _lines(resource, page)
            if page.next is None:
                return
            page = await self._following(routed, selection, page.next.id)

    async def _following(self, routed: RoutedRequest, selection: Selection, after: str) -> Answer:
        """Read a page once the tenant has made good what it spent: a stream can wait."""
        while True:
            try:
                return await self._page(routed, selection, after)
            except TooManyRequests as error:
                await asyncio.sleep(error.retry_after_s)


def _lines(resource: ClassResource, page: Answer) -> bytes:
    return b"".join(
        orjson.dumps(
            document_of(resource.codec, o.id, o.values or {}),
            option=orjson.OPT_APPEND_NEWLINE,
        )
        for o in (item.outcome for item in page.items)
    )
