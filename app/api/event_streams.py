"""``/v1/{database}/event-streams``: streams, and their tuples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import orjson

from app.api.dependents import refuse_content, require_service, require_stream
from app.api.following import EventFeed, Followers, Item, Page, last_event_id
from app.api.models.event_streams import TuplesParameters
from app.api.resources import Directory
from app.api.responses import NO_STORE, REPLAYED, answer_created, answer_json
from app.api.routed_request import RoutedRequest
from app.http.idempotency import OperationIds
from app.http.jsonbody import LARGE_BODY, check_count, parse_json, require_list
from app.http.message import Response, read_body
from app.http.negotiation import JSON, NDJSON
from app.http.paths import parse_query
from app.http.problems import HttpError
from app.http.validation import parse_parameters
from mediator.access.model import Scope
from mediator.base.errors import Location
from mediator.base.offload import offload, throttled
from mediator.event_streams.batch import MAX_BATCH_TUPLES
from mediator.event_streams.declaration import parse_stream, stream_document
from mediator.event_streams.port import StreamKey
from mediator.event_streams.service import EventStreamService

__all__ = ["EventStreamRoutes"]

_MAX_DECLARATION_BYTES: Final = 2**14
_NDJSON_ALIAS: Final = "application/ndjson"
_NUMBER: Final = r"[0-9]{1,15}"


@dataclass(eq=False)
class EventStreamRoutes:
    """The routes of event streams.

    Declaring, listing and dropping streams needs the permission for the whole database. Appending
    to a stream and reading it needs a grant that names the stream, as grants name classes.
    """

    _directory: Directory
    _streams: EventStreamService | None
    _ids: OperationIds
    _limit: int
    _followers: Followers

    async def post(self, routed: RoutedRequest) -> Response:
        """Declare a stream."""
        streams = self._service()
        body, _ = await routed.json_body(min(_MAX_DECLARATION_BYTES, self._limit))
        stream = parse_stream(body)
        await streams.declare(await self._directory.database(routed.database), stream)
        path = f"{routed.database}/event-streams/{stream.name}"
        return answer_created(path, stream_document(stream))

    async def list(self, routed: RoutedRequest) -> Response:
        refuse_content(routed)
        database = await self._directory.database(routed.database)
        declared = await self._service().of_database(database)
        return answer_json(200, {"items": list(map(stream_document, declared))})

    async def get(self, routed: RoutedRequest) -> Response:
        refuse_content(routed)
        key = await self._enter(routed, Scope.READ)
        return answer_json(200, await self._service().report(key))

    async def delete(self, routed: RoutedRequest) -> Response:
        refuse_content(routed)
        routed.access.require(Scope.WRITE, routed.database)
        database = await self._directory.database(routed.database)
        await self._service().drop(StreamKey(database.id, routed.id))
        return Response(204, [NO_STORE])

    async def append(self, routed: RoutedRequest) -> Response:
        """Append tuples, as JSON or NDJSON."""
        streams, type_ = self._service(), routed.media_type(JSON, NDJSON, _NDJSON_ALIAS)
        key = await self._enter(routed, Scope.WRITE)
        parse_query(routed.request.query, frozenset())
        raw = await read_body(routed.request, self._limit)
        decode = _read_batch if type_ == JSON else _read_lines
        documents = await offload(len(raw) > LARGE_BODY, decode, raw)
        retry = routed.identity(self._ids, raw).retry("tuples", routed.id)
        last, is_new = await streams.append(routed.database, key, documents, retry)
        numbers = {"first": last - len(documents) + 1, "last": last}
        return answer_json(200, numbers, [] if is_new else [REPLAYED])

    async def tuples(self, routed: RoutedRequest) -> Response:
        """Answer tuples: as server-sent events, or by long polling."""
        refuse_content(routed, with_parameters=True)
        parameters = parse_parameters(TuplesParameters, routed.request.query)
        streams = self._service()
        key = await self._enter(routed, Scope.READ)
        last = last_event_id(routed, _NUMBER)

        async def read(after: int | None, limit: int, wait_s: float) -> Page[int | None]:
            page = await streams.read(key, after, limit, wait_s)
            items = [
                Item(str(tuple_.number), orjson.dumps(tuple_._asdict())) for tuple_ in page.tuples
            ]
            return Page(items, page.position)

        async def check() -> bytes:
            _require(routed, Scope.READ)
            return b""

        names = "tuples", "position"
        feed = EventFeed("tuple", names, read, check)
        after = parameters.after if last is None else int(last)
        return await self._followers.answer(routed, feed, after, parameters.limit, parameters.wait)

    def _service(self) -> EventStreamService:
        return require_service(self._streams, "are no event streams")

    async def _enter(self, routed: RoutedRequest, scope: Scope) -> StreamKey:
        """Return the key of the request's stream; raise the errors of `Access.require`."""
        # A sender without the permission must not make us look for a newer routing model.
        routed.access.require(scope, routed.database, routed.id, by_anybody=False)
        database = await self._directory.database(routed.database)
        _require(routed, scope)
        return StreamKey(database.id, routed.id)


def _require(routed: RoutedRequest, scope: Scope) -> None:
    """Require a permission for the request's stream; raise the errors of `Access.require`."""
    require_stream(routed, scope, routed.id)


def _read_batch(raw: bytes) -> list[Any]:
    return require_list(parse_json(raw), "tuples", MAX_BATCH_TUPLES)


def _read_lines(raw: bytes) -> list[Any]:
    lines = [line for line in raw.split(b"\n") if not line.isspace() and line]
    check_count(lines, "tuples", MAX_BATCH_TUPLES)
    return [_read_line(index, line) for index, line in enumerate(throttled(lines))]


def _read_line(index: int, line: bytes) -> Any:
    try:
        return parse_json(line)
    except HttpError as error:
        error.locations = tuple(
            Location(f"/tuples/{index}{location.pointer}", location.detail)
            for location in error.locations
        )
        raise
