"""``POST /v1/{database}/{class}/import``: NDJSON in, object by object, resumable.

Each line is put, so a line that comes again changes nothing. An import that broke off says how many
lines are done; ``?skip=`` continues there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final

import orjson

from app.api.creation import given_id
from app.api.identifiers import object_id
from app.api.models.transfer import ImportParameters
from app.api.options import DataOptions
from app.api.responses import JSON_TYPE, NO_STORE
from app.api.routed_request import RoutedRequest
from app.api.submission import Item, submit_all
from app.api.transfer.lines import Line, split_lines
from app.api.writes import WriteTarget, build_put
from app.http.idempotency import Identity, OperationIds, fingerprint_of
from app.http.jsonbody import LARGE_BODY, parse_json, require_object
from app.http.message import Response, bounded, stream_body, too_large
from app.http.negotiation import NDJSON
from app.http.problems import HttpError, problem_of
from app.http.validation import parse_parameters
from mediator.access.metering import refusal
from mediator.base.errors import MediatorError, StorageFull, TooManyRequests, Unavailable
from mediator.base.offload import offload
from mediator.model.operations import ANYTHING, Outcome

__all__ = ["Imports"]

_MOST_PROBLEMS: Final = 100
_CHUNK_BYTES: Final = 4 * 2**20


@dataclass(slots=True)
class _Progress:
    """How far an import is."""

    imported: int = 0
    failed: int = 0
    done: int = 0
    problems: list[dict[str, Any]] = field(default_factory=list)

    def fail(self, line: int, error: MediatorError | HttpError) -> None:
        self.failed += 1
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append({"line": line, **problem_of(error).document()})

    def summary(self) -> dict[str, Any]:
        return {
            "imported": self.imported,
            "failed": self.failed,
            "next": self.done,
            "problems": self.problems,
        }


class Imports:
    """Imports classes."""

    def __init__(self, options: DataOptions, ids: OperationIds) -> None:
        self._options = options
        self._ids = ids

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
        return Response(200, [JSON_TYPE, NO_STORE], orjson.dumps(progress.summary()))

    async def _chunks(self, routed: RoutedRequest, skip: int) -> AsyncIterator[list[Line]]:
        """Gather lines, bounded by number and by size."""
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
                progress.fail(line.number, answer)
            progress.done = line.number
        if routed.access.meter.is_over(perf_counter() - routed.request.phases.started):
            raise _too_long(progress)

    def _items(self, routed: RoutedRequest, identity: Identity, chunk: list[Line]) -> list[Item]:
        return [self._item(routed, identity, line) for line in chunk]

    def _item(self, routed: RoutedRequest, identity: Identity, line: Line) -> Item:
        try:
            return self._plan(routed, identity, line)
        except (MediatorError, HttpError) as error:
            return error

    def _plan(self, routed: RoutedRequest, identity: Identity, line: Line) -> Item:
        if line.text is None:
            raise too_large(self._line_limit(routed), "line")
        resource = routed.resource
        document = require_object(parse_json(line.text))
        id_ = given_id(document) or object_id(identity, resource.name, line.number)
        operation = identity.operation(resource.name, id_, line.number)
        fingerprint = None if identity.key is None else fingerprint_of(line.text)
        target = WriteTarget(
            resource, resource.full_selection, id_, operation, ANYTHING, fingerprint
        )
        target.owner = routed.owner
        return build_put(target, document)


def _too_long(progress: _Progress) -> TooManyRequests:
    error = refusal("stream_seconds", "the import has taken too long; go on with the line `next`.")
    error.extra |= progress.summary()
    return error
