"""``…/import`` and ``…/export`` of a class: resumable NDJSON, one object per line.

Each line of an import is a put, so a repeated line changes nothing. An import that breaks off
reports how many lines are done; ``?skip=`` continues there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final, NamedTuple

import orjson

from app.api.models.reads import ExportParameters, ImportParameters
from app.api.object_ids import id_in_body, object_id
from app.api.options import DataOptions
from app.api.resources import ClassResource, FieldSelection
from app.api.responses import NO_STORE, answer_json, document_of
from app.api.routed_request import RoutedRequest
from app.api.submission import Failures, Item, plan_or_refuse, submit_all
from app.api.writes import PlannedOperation, WriteTarget, build_import
from app.http.idempotency import Identity, OperationIds, fingerprint_of
from app.http.jsonbody import LARGE_BODY, parse_json, require_object
from app.http.message import Response, bounded, forbid_body, stream_body, too_large
from app.http.negotiation import NDJSON
from app.http.validation import parse_parameters
from mediator.access.metering import refusal
from mediator.access.model import Scope
from mediator.base.errors import StorageFull, TooManyRequests, Unavailable
from mediator.base.offload import offload
from mediator.base.page_size import PageSize
from mediator.model.operations import ANYTHING, Outcome
from mediator.model.query import Position, Query
from mediator.query.execution import QueryResult
from mediator.routing.freshness import WHOLE
from mediator.schema.ids import check_id

__all__ = ["Exports", "Imports", "Line", "split_lines"]

_CHUNK_BYTES: Final = 4 * 2**20

_FIRST_PAGE_SIZE: Final = 100
"""Objects in the first page of an export, when their sizes are still unknown."""


@dataclass(slots=True)
class _Progress:
    imported: int = 0
    done: int = 0
    failures: Failures = field(default_factory=Failures)

    def summary(self) -> dict[str, Any]:
        failed, problems = self.failures.failed, self.failures.problems
        counts = {"imported": self.imported, "failed": failed, "next": self.done}
        return {**counts, "problems": problems}


@dataclass(eq=False)
class Imports:
    _options: DataOptions
    _ids: OperationIds

    async def post(self, routed: RoutedRequest) -> Response:
        """Put every line; if a system stops answering, its error includes the progress."""
        routed.media_type(NDJSON, "application/ndjson")
        skip = parse_parameters(ImportParameters, routed.request.query).skip
        identity = routed.identity(self._ids)
        with self._ids.claim(identity):
            progress = _Progress(done=skip)
            routed.request.phases.end("parse")
            async for chunk in self._chunks(routed, skip):
                await self._put(routed, identity, chunk, progress)
        routed.request.phases.end("store")
        return answer_json(200, progress.summary())

    async def _chunks(self, routed: RoutedRequest, skip: int) -> AsyncIterator[list[Line]]:
        chunk: list[Line] = []
        size = 0
        lines = split_lines(stream_body(routed.request), self._line_limit(routed))
        async for line in lines:
            if line.number <= skip:
                continue
            chunk.append(line)
            size += len(line.text or b"")
            if len(chunk) >= self._options.chunk_lines or size >= _CHUNK_BYTES:
                yield chunk
                chunk, size = [], 0
        if chunk:
            yield chunk

    def _line_limit(self, routed: RoutedRequest) -> int:
        return bounded(routed.request, self._options.max_line_bytes)

    async def _put(
        self, routed: RoutedRequest, identity: Identity, chunk: list[Line], progress: _Progress
    ) -> None:
        is_large = sum(len(line.text or b"") for line in chunk) > LARGE_BODY
        items = await offload(is_large, self._items, routed, identity, chunk)
        answers = await submit_all(routed.plane, items)
        for line, answer in zip(chunk, answers, strict=True):
            if isinstance(answer, Unavailable | StorageFull):
                # Later lines of the chunk may be done already; putting them again is harmless.
                answer.extra |= progress.summary()
                raise answer
            if isinstance(answer, Outcome):
                progress.imported += 1
            else:
                progress.failures.add(answer, line=line.number)
            progress.done = line.number
        if routed.access.meter.is_over(perf_counter() - routed.request.phases.started):
            reason = "the import has taken too long; go on with the line `next`."
            error = refusal("stream_seconds", reason)
            error.extra |= progress.summary()
            raise error

    def _items(self, routed: RoutedRequest, identity: Identity, chunk: list[Line]) -> list[Item]:
        return [plan_or_refuse(self._plan, routed, identity, line) for line in chunk]

    def _plan(self, routed: RoutedRequest, identity: Identity, line: Line) -> PlannedOperation:
        if line.text is None:
            raise too_large(self._line_limit(routed), "line")
        resource = routed.resource
        document = require_object(parse_json(line.text))
        id_ = id_in_body(document) or object_id(identity, resource.name, line.number)
        operation = identity.operation(resource.name, id_, line.number)
        fingerprint = None
        if identity.key is not None:
            fingerprint = fingerprint_of(line.text, *routed.pinned_names)
        selection = resource.full_selection
        target = WriteTarget(resource, selection, id_, operation, ANYTHING, fingerprint)
        target.owner = routed.owner
        return build_import(target, document)


@dataclass(eq=False)
class Exports:
    """Each page has at most `_page_limit` objects."""

    _page_limit: int

    async def get(self, routed: RoutedRequest) -> Response:
        forbid_body(routed.request)
        parameters = parse_parameters(ExportParameters, routed.request.query)
        selection = routed.resource.select(parameters.fields)
        after = None if parameters.after is None else check_id(parameters.after, "after")
        routed.request.phases.end("parse")
        export = _Export(routed, selection, self._page_limit)
        # The first page is read before the status is sent, so that its errors can be answered.
        first = await export.page(after)
        routed.request.phases.end("store")
        headers = [(b"content-type", NDJSON.encode()), NO_STORE]
        return Response(200, headers, chunks=export.stream(first))


@dataclass(eq=False)
class _Export:
    """One export; its page size adapts to the size of objects."""

    _routed: RoutedRequest
    _selection: FieldSelection
    _page_limit: int
    _page_size: PageSize = field(default_factory=lambda: PageSize(_FIRST_PAGE_SIZE), init=False)

    async def page(self, after: str | None) -> QueryResult:
        resource = self._routed.resource
        query = Query(
            resource.database,
            resource.name,
            after=None if after is None else Position((), after),
            limit=min(self._page_limit, self._page_size.count),
            fields=self._selection.fields,
            may_end_early=True,
            is_sized=True,
        )
        return await self._routed.plane.query(query, WHOLE)

    async def stream(self, page: QueryResult) -> AsyncIterator[bytes]:
        while True:
            if page.items:
                lines = _lines(self._routed.resource, page)
                self._page_size.succeeded([len(line) for line in lines])
                yield b"".join(lines)
            if page.next is None:
                return
            next_page = await self._next_page(page.next.id)
            if next_page is None:
                return
            page = next_page

    async def _next_page(self, after: str) -> QueryResult | None:
        """Read the next page as soon as the tenant's limits allow; None: the client has gone.

        Raises:
            Forbidden: The sender may no longer read the class.
        """
        routed = self._routed
        while not routed.request.is_disconnected:
            routed.access.require(Scope.READ, routed.database, routed.class_name)
            try:
                return await self.page(after)
            except TooManyRequests as error:
                await asyncio.sleep(error.retry_after_s)
        return None


def _lines(resource: ClassResource, page: QueryResult) -> list[bytes]:
    return [
        orjson.dumps(
            document_of(resource.codec, o.id, o.values or {}),
            option=orjson.OPT_APPEND_NEWLINE,
        )
        for o in (item.outcome for item in page.items)
    ]


class Line(NamedTuple):
    """A line that is not blank.

    Attributes:
        number: Its number, from 1 on; blank lines count.
        text: The line without its end; None if it was longer than allowed.
    """

    number: int
    text: bytes | None


async def split_lines(pieces: AsyncIterator[bytes], max_bytes: int) -> AsyncIterator[Line]:
    """Split a stream at line feeds; lines longer than `max_bytes` are dropped as they arrive."""
    number, buffer, is_dropped = 1, bytearray(), False
    async for piece in pieces:
        *complete, tail = piece.split(b"\n")
        for piece_of_line in complete:
            if line := _line(number, buffer, piece_of_line, max_bytes, is_dropped=is_dropped):
                yield line
            number, is_dropped = number + 1, False
            buffer.clear()
        is_dropped = is_dropped or len(buffer) + len(tail) > max_bytes
        buffer += b"" if is_dropped else tail
    if last := _line(number, buffer, b"", max_bytes, is_dropped=is_dropped):
        yield last


def _line(
    number: int, buffer: bytearray, part: bytes, max_bytes: int, *, is_dropped: bool
) -> Line | None:
    if is_dropped or len(buffer) + len(part) > max_bytes:
        return Line(number, None)
    text = (bytes(buffer) + part).strip(b" \t\r")
    return Line(number, text) if text else None
