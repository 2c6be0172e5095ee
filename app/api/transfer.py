"""``…/import`` and ``…/export`` of a class: NDJSON in and out, object by object, resumable.

Each line of an import is put, so a line that comes again changes nothing. An import that broke off
says how many lines are done; ``?skip=`` continues there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final, NamedTuple

import orjson

from app.api.models.reads import ExportParameters, ImportParameters
from app.api.object_ids import given_id, object_id
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

_FIRST_PAGE: Final = 100
"""Objects that an export reads first: nothing is known of their sizes then."""


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
        """Put every line; a system that stops answering ends it with what is done so far."""
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
                # What follows in the chunk may be done already; putting it again is harmless.
                answer.extra |= progress.summary()
                raise answer
            if isinstance(answer, Outcome):
                progress.imported += 1
            else:
                progress.failures.add(answer, line=line.number)
            progress.done = line.number
        if routed.access.meter.is_over(perf_counter() - routed.request.phases.started):
            why = "the import has taken too long; go on with the line `next`."
            error = refusal("stream_seconds", why)
            error.extra |= progress.summary()
            raise error

    def _items(self, routed: RoutedRequest, identity: Identity, chunk: list[Line]) -> list[Item]:
        return [plan_or_refuse(self._plan, routed, identity, line) for line in chunk]

    def _plan(self, routed: RoutedRequest, identity: Identity, line: Line) -> PlannedOperation:
        if line.text is None:
            raise too_large(self._line_limit(routed), "line")
        resource = routed.resource
        document = require_object(parse_json(line.text))
        id_ = given_id(document) or object_id(identity, resource.name, line.number)
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
    """`_most` objects are read at a time."""

    _most: int

    async def get(self, routed: RoutedRequest) -> Response:
        forbid_body(routed.request)
        parameters = parse_parameters(ExportParameters, routed.request.query)
        selection = routed.resource.select(parameters.fields)
        after = None if parameters.after is None else check_id(parameters.after, "after")
        routed.request.phases.end("parse")
        export = _Export(routed, selection, self._most)
        # The first page is read before the status is sent, so that its errors can be answered.
        first = await export.page(after)
        routed.request.phases.end("store")
        headers = [(b"content-type", NDJSON.encode()), NO_STORE]
        return Response(200, headers, chunks=export.stream(first))


@dataclass(eq=False)
class _Export:
    """One export, whose pages are as large as the objects allow."""

    _routed: RoutedRequest
    _selection: FieldSelection
    _most: int
    _page_size: PageSize = field(default_factory=lambda: PageSize(_FIRST_PAGE), init=False)

    async def page(self, after: str | None) -> QueryResult:
        resource = self._routed.resource
        query = Query(
            resource.database,
            resource.name,
            after=None if after is None else Position((), after),
            limit=min(self._most, self._page_size.count),
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
            following = await self._following(page.next.id)
            if following is None:
                return
            page = following

    async def _following(self, after: str) -> QueryResult | None:
        """Read a page as soon as the tenant's limits allow it: a stream can wait.

        Returns:
            None: The client has gone.

        Raises:
            Forbidden: The sender may not read the class any more; as `Access.require` does.
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


async def split_lines(pieces: AsyncIterator[bytes], longest: int) -> AsyncIterator[Line]:
    """Split a stream at line feeds; lines beyond `longest` bytes are dropped as they come in."""
    number, buffer, dropping = 1, bytearray(), False
    async for piece in pieces:
        *ended, rest = piece.split(b"\n")
        for part in ended:
            if line := _line(number, buffer, part, longest, dropping=dropping):
                yield line
            number, dropping = number + 1, False
            buffer.clear()
        dropping = dropping or len(buffer) + len(rest) > longest
        buffer += b"" if dropping else rest
    if last := _line(number, buffer, b"", longest, dropping=dropping):
        yield last


def _line(
    number: int, buffer: bytearray, part: bytes, longest: int, *, dropping: bool
) -> Line | None:
    if dropping or len(buffer) + len(part) > longest:
        return Line(number, None)
    text = (bytes(buffer) + part).strip(b" \t\r")
    return Line(number, text) if text else None
