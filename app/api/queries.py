"""``GET /v1/{database}/{class}`` and ``POST …/query``: objects by their ids, or by a query."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Final

import orjson

from app.api.cursors import Cursors
from app.api.options import DataOptions
from app.api.resources import ClassResource, FieldSelection
from app.api.responses import (
    JSON_TYPE,
    NO_STORE,
    REVALIDATE,
    add_freshness,
    add_preference_headers,
    document_of,
    next_link,
)
from app.api.routed_request import RoutedRequest
from app.coherence.cached_reads import CachedReads, ReadGrant
from app.http.jsonbody import parse_json
from app.http.message import Headers, Response, forbid_body, read_body
from app.http.negotiation import JSON
from app.http.paths import decode_text, parse_pairs, parse_query
from app.http.problems import INVALID, HttpError
from mediator.access.model import Scope
from mediator.base.errors import Invalid, Location, NotFound
from mediator.base.offload import offload
from mediator.model.operations import Freshness, Get, Outcome
from mediator.model.query import CountMode, Join, Position, ReverseJoin
from mediator.query.execution import QueryResult
from mediator.query.explain import explanation
from mediator.query.parameters import parse_parameters
from mediator.query.parser import ParsedQuery, parse_query_document
from mediator.query.paths import decode_position, encode_position, row_document
from mediator.routing.freshness import STRONG
from mediator.routing.model import RoutingModel
from mediator.schema.ids import check_id
from mediator.schema.types import projected
from mediator.schema.values import Codec
from sketch.protocol.port import Partition

__all__ = ["SMALL_QUERY", "Queries"]

_ID_PARAMETERS: Final = frozenset({"ids", "fields"})
_LARGE_RESULT: Final = 4_000
"""Values from which on encoding objects takes more than about a millisecond."""

_MAX_CACHED: Final = 256

MAX_QUERY_BYTES: Final = 2**17
"""Size limit of a query in a body."""

SMALL_QUERY: Final = 2**12
"""Bytes of a query that is parsed in a millisecond or two."""


@dataclass(eq=False)
class Queries:
    _options: DataOptions
    _cursors: Cursors
    _reads: CachedReads | None
    _parsed: dict[tuple[Any, ...], ParsedQuery] = field(default_factory=dict, init=False)
    _parsed_model: RoutingModel | None = field(default=None, init=False)

    async def get(self, routed: RoutedRequest) -> Response:
        """Answer ``?ids=``, or the query in the parameters."""
        forbid_body(routed.request)
        pairs = parse_pairs(routed.request.query)
        if any(name == "ids" for name, _ in pairs):
            return await self._by_ids(routed)
        names = next((value for name, value in pairs if name == "fields"), None)
        resource = routed.resource
        selection = resource.only_ids if names == "id" else resource.select(names)
        read = await self._read(
            routed, pairs, len(routed.request.query), lambda: pairs, parse_parameters
        )
        grant = None
        if self._reads is not None and selection.canonical and _is_registered(read):
            partition, route = Partition(routed.database, routed.class_name), routed.resource.route
            grant = await self._reads.grant_query(
                partition, route, routed.request.query, read.query.filter, routed.preference()
            )
        return await self._answer(routed, read, selection, grant, parameters=pairs)

    async def post(self, routed: RoutedRequest) -> Response:
        parse_query(routed.request.query, frozenset())
        routed.media_type(JSON)
        raw = await read_body(routed.request, min(self._options.max_body_bytes, MAX_QUERY_BYTES))
        read = await self._read(
            routed, (raw,), len(raw), lambda: parse_json(raw), parse_query_document
        )
        selection = routed.resource.full_selection
        if read.query.fields is not None:
            selection = replace(routed.resource.full_selection, fields=read.query.fields)
        return await self._answer(routed, read, selection)

    async def _read(
        self,
        routed: RoutedRequest,
        key_parts: Sequence[Hashable],
        length: int,
        parse: Callable[[], Any],
        reader: Callable[..., ParsedQuery],
    ) -> ParsedQuery:
        """Parse a query, or reuse the result for the same text and schema.

        Queries that are long (`length` is in bytes), have a cursor or are pinned are not cached.
        """
        resource, model = routed.resource, routed.plane.model
        # The cache of this model: a newer model may replace it during the await.
        cached = {} if routed.pinned is not None else self._parsed_for(model)
        key = (resource.database, resource.name, *key_parts)
        read = cached.get(key)
        if read is None:
            schema = routed.schema
            page_limit, is_long = self._options.page_limit, length > SMALL_QUERY
            read = await offload(
                is_long, reader, parse(), schema, resource.name, max_limit=page_limit
            )
            query = replace(read.query, as_documents=True, may_end_early=True)
            read = replace(read, query=query)
            if read.after is None and not is_long:
                cached[key] = read
        return read

    def _parsed_for(self, model: RoutingModel) -> dict[tuple[Any, ...], ParsedQuery]:
        if self._parsed_model is not model or len(self._parsed) >= _MAX_CACHED:
            self._parsed_model, self._parsed = model, {}
        return self._parsed

    async def _answer(
        self,
        routed: RoutedRequest,
        read: ParsedQuery,
        selection: FieldSelection,
        grant: ReadGrant | None = None,
        *,
        parameters: Sequence[tuple[str, str]] | None = None,
    ) -> Response:
        """Answer a query; without `parameters` it came in a body, and has no URL."""
        resource = routed.resource
        for class_name in sorted(read.query.joined_classes):
            routed.access.require(Scope.READ, resource.database, class_name)
        if read.explain:  # the plan reveals how many objects other owners have
            routed.access.require_all(resource.database, resource.name)
        query = read.query
        if read.after is not None:
            query = replace(query, after=self._position(resource, read, read.after))
        routed.request.phases.end("parse")
        preference = routed.preference()
        answer = await routed.plane.query(
            query, STRONG if grant and not preference.whole else preference
        )
        routed.request.phases.end("store")
        document: dict[str, Any] = {"items": await self._documents(routed, selection, read, answer)}
        if query.aggregate is None:
            document["next"] = self._next(resource, read, answer.next)
        if answer.total is not None:
            document |= {"total": answer.total.objects, "count": answer.total.count}
        if read.explain:
            document["explain"] = explanation(answer.plan, answer.budget, answer.size)
        fresh = parameters is not None and selection.canonical and answer.freshness is None
        headers = self._cache_headers(grant) if fresh and not answer.partial else [NO_STORE]
        if parameters is not None:
            path = f"/v1/{resource.database}/{resource.name}"
            headers = [*headers, *next_link(path, parameters, document.get("next"))]
        body = orjson.dumps(document)
        return _respond(routed, body, headers, answer.freshness, answer.partial)

    def _cache_headers(self, grant: ReadGrant | None) -> Headers:
        if grant is None or self._reads is None:
            return [REVALIDATE]
        return self._reads.cache_headers(grant)

    def _position(self, resource: ClassResource, read: ParsedQuery, after: str) -> Position:
        sealed = self._cursors.open(_cursor_binding(resource, read), _database_id(resource), after)
        return decode_position(read.levels, sealed)

    def _next(
        self, resource: ClassResource, read: ParsedQuery, position: Position | None
    ) -> str | None:
        if position is None:
            return None
        sealed = encode_position(read.levels, position)
        return self._cursors.seal(_cursor_binding(resource, read), _database_id(resource), sealed)

    async def _documents(
        self,
        routed: RoutedRequest,
        selection: FieldSelection,
        read: ParsedQuery,
        answer: QueryResult,
    ) -> list[dict[str, Any]]:
        width = len(routed.resource.schema.fields) * (1 + len(read.query.joins))
        documents = answer.documents
        if documents is not None:
            classes = [join.class_name for join in read.query.joins]
            codecs = [routed.resource.codec, *[routed.route_of(name).codec for name in classes]]
            if not all(codec.is_plain for codec in codecs):
                is_large = len(documents) * width > _LARGE_RESULT
                await offload(is_large, _encode, documents, codecs, read.query.joins)
            return documents
        list_size = sum(len(objects) for item in answer.items for objects in item.lists.values())
        is_large = (len(answer.items) + len(answer.rows) + list_size) * width > _LARGE_RESULT
        return await offload(is_large, self._items, routed, selection, read, answer)

    def _items(
        self,
        routed: RoutedRequest,
        selection: FieldSelection,
        read: ParsedQuery,
        answer: QueryResult,
    ) -> list[dict[str, Any]]:
        if read.query.aggregate is not None:
            return [
                row_document(read.results, (*row.group, *row.computed.values()))
                for row in answer.rows
            ]
        documents = _documents_of(
            routed.resource, selection, [item.outcome for item in answer.items]
        )
        for join in read.query.joins:
            codec = routed.route_of(join.class_name).codec
            for document, item in zip(documents, answer.items, strict=True):
                outcome = item.joined[join.alias]
                document[join.alias] = (
                    None if outcome is None else _joined_document(codec, join, outcome)
                )
        lists: tuple[Join | ReverseJoin, ...] = (*read.query.list_joins, *read.query.reverse_joins)
        for list_join in lists:
            codec = routed.route_of(list_join.class_name).codec
            for document, item in zip(documents, answer.items, strict=True):
                document[list_join.alias] = [
                    _joined_document(codec, list_join, outcome)
                    for outcome in item.lists[list_join.alias]
                ]
        return documents

    async def _by_ids(self, routed: RoutedRequest) -> Response:
        parameters = _only_ids(routed)
        resource = routed.resource
        selection = resource.select(parameters.get("fields"))
        ids = _ids(parameters["ids"], self._options.batch_limit)
        gets = [Get(resource.database, resource.name, id_, selection.fields) for id_ in ids]
        routed.request.phases.end("parse")
        outcomes = await routed.plane.batch(gets, whole=routed.preference().whole)
        routed.request.phases.end("store")
        outcomes_found: list[Outcome] = []
        missing: list[str] = []
        for get, outcome in zip(gets, outcomes, strict=True):
            if isinstance(outcome, Outcome):
                outcomes_found.append(outcome)
            elif isinstance(outcome, NotFound):
                missing.append(get.id)
            else:
                raise outcome
        partial = {group for outcome in outcomes_found for group in outcome.partial}
        kept = selection.canonical and not partial
        headers: Headers = [JSON_TYPE, REVALIDATE if kept else NO_STORE]
        add_preference_headers(headers, routed.preferences, tuple(sorted(partial)))
        is_large = len(outcomes_found) * len(resource.schema.fields) > _LARGE_RESULT
        items = await offload(is_large, _documents_of, resource, selection, outcomes_found)
        return Response(200, headers, orjson.dumps({"items": items, "missing": missing}))


def _respond(
    routed: RoutedRequest,
    body: bytes,
    query_headers: Headers,
    freshness: Freshness | None,
    partial: tuple[str, ...],
) -> Response:
    """Answer a query; its tag is a digest of the body.

    The answer to a POST has none: caches do not keep it, so it is never revalidated.
    """
    headers: Headers = [*query_headers]
    add_freshness(headers, freshness)
    if routed.request.method != "POST":
        tag = f'"{blake2b(body, digest_size=16).hexdigest()}"'
        headers.append((b"etag", tag.encode()))
        if not partial and routed.preconditions().not_modified(tag):
            return Response(304, headers)
    headers.append(JSON_TYPE)
    add_preference_headers(headers, routed.preferences, partial)
    return Response(200, headers, body)


def _is_registered(read: ParsedQuery) -> bool:
    """Whether writes to the class invalidate the result.

    Joined objects change by writes to other classes, and an estimate changes without writes.
    """
    query = read.query
    return not (read.explain or query.joined_classes or query.count is CountMode.ESTIMATED)


def _cursor_binding(resource: ClassResource, read: ParsedQuery) -> tuple[str, ...]:
    pinned = resource.full_selection.pinned
    binding = resource.database, resource.name, read.identity
    # The same text can mean different fields in another version.
    return (*binding, str(pinned)) if pinned else binding


def _database_id(resource: ClassResource) -> str:
    return resource.route.anchor.database_id


def _documents_of(
    resource: ClassResource, selection: FieldSelection, outcomes: Sequence[Outcome]
) -> list[dict[str, Any]]:
    codec, names = resource.codec, selection.fields
    return [document_of(codec, o.id, projected(o.values or {}, names)) for o in outcomes]


def _joined_document(codec: Codec, join: Join | ReverseJoin, outcome: Outcome) -> dict[str, Any]:
    return {"id": outcome.id, **codec.encode(projected(outcome.values or {}, join.fields))}


def _encode(
    documents: list[dict[str, Any]], codecs: Sequence[Codec], joins: Sequence[Join]
) -> None:
    """Replace the values of documents, and of joined objects, by their JSON."""
    codec_of_class, *joined_codecs = codecs
    codec_of_class.encode_all(documents)
    for join, codec in zip(joins, joined_codecs, strict=True):
        joined = [document[join.alias] for document in documents]
        codec.encode_all([document for document in joined if document is not None])


def _only_ids(routed: RoutedRequest) -> dict[str, str]:
    pairs = parse_pairs(routed.request.query)
    unexpected = sorted({name for name, _ in pairs} - _ID_PARAMETERS)
    if unexpected:
        locations = [Location(name, "does not go together with ids") for name in unexpected]
        raise Invalid("ids go together with fields only.", locations=locations)
    return parse_query(routed.request.query, _ID_PARAMETERS)


def _ids(text: str, limit: int) -> list[str]:
    """Split the list of ids, each of which is percent-encoded and so can contain a comma."""
    parts = text.split(",")
    if len(parts) > limit:
        locations = [Location("ids", f"at most {limit} are allowed")]
        raise HttpError(INVALID, "There are too many ids.", locations=locations)
    ids = [decode_text(part.encode(), "ids") if "%" in part else part for part in parts]
    return [check_id(id_, "ids") for id_ in dict.fromkeys(ids)]
