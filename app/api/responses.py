"""Responses for outcomes: representations, entity tags and header fields."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Final
from urllib.parse import quote

import orjson

from app.api.cursors import position_of
from app.api.resources import FieldSelection
from app.api.routed_request import RoutedRequest
from app.api.writes import PlannedOperation
from app.http.caching import NO_STORE
from app.http.message import Header, Headers, Response
from app.http.negotiation import EVENT_STREAM, JSON
from app.http.preconditions import format_tag
from app.http.prefer import Preferences
from app.http.problems import PROBLEM_JSON, problem_of
from mediator.base.errors import NotFound
from mediator.model.operations import Create, Delete, Freshness, Get, Outcome, Put
from mediator.schema.types import Values, projected
from mediator.schema.values import Codec
from sketch.protocol.keys import canonical_query

__all__ = [
    "JSON_TYPE",
    "NO_STORE",
    "REPLAYED",
    "REVALIDATE",
    "add_freshness",
    "add_preference_headers",
    "answer_absence",
    "answer_created",
    "answer_events",
    "answer_json",
    "answer_read",
    "answer_write",
    "document_of",
    "location_of",
    "next_link",
    "represent",
    "result_of",
    "tag_of",
]

JSON_TYPE: Final = (b"content-type", JSON.encode())
REVALIDATE: Final = (b"cache-control", b"no-cache")
REPLAYED: Final = (b"idempotency-replayed", b"true")
_MAX_LINK_BYTES: Final = 2_000
"""Bytes of a link: proxies have a few kilobytes for all header fields of an answer."""

# Ids that are also names of routes: routes are matched by the raw path, where the escapes differ.
_ESCAPED_IDS: Final = {"query": "%71uery", "import": "%69mport", "export": "%65xport"}


def tag_of(selection: FieldSelection, outcome: Outcome) -> str | None:
    """Return the strong tag of a resource; None if the outcome of a write lacks a version."""
    versions = outcome.versions
    for group in selection.groups:
        if group not in versions:
            return None
    return format_tag(selection.schema_version, selection.groups, versions, selection.pinned)


def location_of(planned: PlannedOperation) -> str:
    resource, id_ = planned.resource, planned.operation.id
    segment = _ESCAPED_IDS.get(id_) or quote(id_, safe="")
    return f"/v1/{resource.database}/{resource.name}/{segment}"


def represent(planned: PlannedOperation, outcome: Outcome) -> dict[str, Any]:
    """Return the JSON of an operation's resource, or of the fields that it touched.

    Fields are sorted by name. Stores and replicas return them in different orders, but a strong tag
    requires the same bytes from all of them (RFC 9110, section 8.8.1).
    """
    operation = planned.operation
    values = outcome.values or {}
    if isinstance(operation, Create | Put):
        values = {**operation.values, **values}
    elif planned.touched is not None:
        values = projected(values, planned.touched)
    return document_of(planned.resource.codec, outcome.id, values)


def document_of(codec: Codec, id_: str, values: Values) -> dict[str, Any]:
    """Return the JSON of an object: its id, and these fields, sorted by name."""
    encoded = codec.encode(values)
    if tuple(encoded) == codec.names:  # all fields, already in order, as in most answers of stores
        return {"id": id_, **encoded}
    return {"id": id_, **{name: encoded[name] for name in sorted(encoded)}}


def answer_read(
    routed: RoutedRequest,
    planned: PlannedOperation,
    outcome: Outcome,
    cache_headers: Sequence[Header] = (REVALIDATE,),
) -> Response:
    """Answer a GET or HEAD: 200, or 304 with the fields of RFC 9110, 15.4.5.

    Caches must not keep answers of a view, which are stale, nor partial or non-canonical ones;
    `cache_headers` govern the others.
    """
    selection = planned.selection
    tag = format_tag(selection.schema_version, selection.groups, outcome.versions, selection.pinned)
    cacheable = selection.canonical and outcome.freshness is None and not outcome.partial
    headers = [(b"etag", tag.encode()), *(cache_headers if cacheable else (NO_STORE,))]
    add_freshness(headers, outcome.freshness)
    if not outcome.partial and routed.preconditions().not_modified(tag):
        return Response(304, headers)
    headers.append(JSON_TYPE)
    add_preference_headers(headers, routed.preferences, outcome.partial)
    return Response(200, headers, orjson.dumps(represent(planned, outcome)))


def answer_json(status: int, document: Any, headers: Sequence[Header] = ()) -> Response:
    """Answer with uncacheable JSON."""
    return Response(status, [JSON_TYPE, NO_STORE, *headers], orjson.dumps(document))


def answer_created(path: str, document: Any) -> Response:
    """Answer the creation of a resource at a path of the data API."""
    return answer_json(201, document, [(b"location", f"/v1/{path}".encode())])


def answer_events(events: AsyncIterator[bytes]) -> Response:
    """Answer with server-sent events (HTML, section 9.2), which proxies must not buffer."""
    headers = [(b"content-type", EVENT_STREAM.encode()), NO_STORE, (b"x-accel-buffering", b"no")]
    return Response(200, headers, chunks=events)


def answer_absence(
    routed: RoutedRequest, error: NotFound, cache_headers: Sequence[Header]
) -> Response:
    """Answer a GET or HEAD of a missing object; caches can keep the answer (RFC 9110, 15.5.5).

    It has no tag: preconditions are ignored for such an answer (RFC 9110, 13.2.1).
    """
    problem = problem_of(error)
    headers = [(b"content-type", PROBLEM_JSON.encode()), *cache_headers]
    return Response(problem.type.status, headers, problem.body(routed.request.id))


def answer_write(routed: RoutedRequest, planned: PlannedOperation, outcome: Outcome) -> Response:
    preferences = routed.preferences
    status = _status(planned, outcome, minimal=preferences.minimal)
    headers = [NO_STORE, (b"portolan-position", position_of(planned, outcome).encode())]
    is_delete = isinstance(planned.operation, Delete)
    tag = None if is_delete else tag_of(planned.selection, outcome)
    if tag is not None:
        headers.append((b"etag", tag.encode()))
    if outcome.replayed:
        headers.append(REPLAYED)
    add_preference_headers(
        headers, preferences, outcome.partial, is_full=_is_representation(planned, outcome)
    )
    if is_delete or preferences.minimal:
        return Response(status, headers)
    headers.append(JSON_TYPE)
    return Response(status, headers, orjson.dumps(represent(planned, outcome)))


def result_of(planned: PlannedOperation, outcome: Outcome, *, minimal: bool) -> dict[str, Any]:
    is_read = isinstance(planned.operation, Get)
    is_delete = isinstance(planned.operation, Delete)
    minimal = minimal and not is_read
    status = _status(planned, outcome, minimal=minimal)
    result: dict[str, Any] = {"status": status, "id": outcome.id}
    tag = None if is_delete else tag_of(planned.selection, outcome)
    if tag is not None:
        result["etag"] = tag
        if planned.client_tags is not None and planned.client_tags.match_weakly(tag):
            return {**result, "status": 304}
    if not is_read:
        result["position"] = position_of(planned, outcome)
    if outcome.replayed:
        result["replayed"] = True
    if outcome.partial:
        result["partial"] = list(outcome.partial)
    if not (is_delete or minimal):
        result["body"] = represent(planned, outcome)
    return result


def _status(planned: PlannedOperation, outcome: Outcome, *, minimal: bool) -> int:
    if outcome.created:
        return 201
    return 204 if minimal or isinstance(planned.operation, Delete) else 200


def add_freshness(headers: Headers, freshness: Freshness | None) -> None:
    """Add the staleness of a view's answer: the guaranteed bound and the measured value, in s."""
    if freshness is not None:
        staleness = f"bound={freshness.bound_s:g}, measured={freshness.measured_s:.3f}"
        headers.append((b"portolan-staleness", staleness.encode()))


def _is_representation(planned: PlannedOperation, outcome: Outcome) -> bool:
    """Whether the answer to a write equals that to a read at the same time."""
    is_complete = outcome.values is not None and not (outcome.replayed or outcome.partial)
    return is_complete and planned.touched is None


def add_preference_headers(
    headers: Headers, preferences: Preferences, partial: tuple[str, ...], *, is_full: bool = True
) -> None:
    """Add the applied preferences, and the groups that have yet to be rolled forward."""
    applied = preferences.applied if is_full else preferences.applied_in_part
    if applied:
        headers.append((b"preference-applied", applied.encode("latin-1")))
    if partial:
        headers.append((b"portolan-partial", ", ".join(partial).encode()))


def next_link(path: str, parameters: Iterable[tuple[str, str]], cursor: str | None) -> Headers:
    """Return the Link field of the next page (RFC 8288), with a canonical, cacheable URL.

    Empty if there is no next page, or if the URL is too long for a field: the body has the cursor.
    """
    if cursor is None:
        return []
    remaining = [(name, value) for name, value in parameters if name != "after"]
    address = f"{path}?{canonical_query([*remaining, ('after', cursor)])}"
    if len(address) > _MAX_LINK_BYTES:
        return []
    return [(b"link", f'<{address}>; rel="next"'.encode())]
