"""``POST /v1/{database}/{class}``: creates one object, or many, under ids of clients or of ours."""

from __future__ import annotations

import os
import time
import uuid
from dataclasses import dataclass
from typing import Any

import orjson

from app.api.options import DataOptions
from app.api.responses import JSON_TYPE, NO_STORE, answer_write, location_of
from app.api.routed_request import RoutedRequest
from app.api.submission import Item, plan_or_refuse, render_items, submit, submit_all
from app.api.writes import PlannedOperation, WriteTarget, build_create
from app.http.idempotency import Identity, OperationIds
from app.http.jsonbody import LARGE_BODY, parse_json, require_object
from app.http.message import Response, read_body
from app.http.negotiation import JSON
from app.http.paths import parse_query
from mediator.base.errors import Invalid, Location
from mediator.base.offload import offload
from mediator.model.operations import ANYTHING
from mediator.schema.ids import check_id

__all__ = ["Creation", "derived_id", "given_id", "new_id", "object_id"]

_VARIANT = 0b10 << 62
_LOW = (1 << 62) - 1


@dataclass(eq=False)
class Creation:
    _options: DataOptions
    _ids: OperationIds

    async def post(self, routed: RoutedRequest) -> Response:
        routed.media_type(JSON)
        parse_query(routed.request.query, frozenset())
        raw = await read_body(routed.request, self._options.max_body_bytes)
        body = parse_json(raw)
        identity = routed.identity(self._ids, raw)
        with self._ids.claim(identity):
            is_large = len(raw) > LARGE_BODY
            if isinstance(body, list):
                return await self._many(routed, identity, body, is_large=is_large)
            planned = await offload(is_large, _plan, routed, identity, body, None)
            return await self._one(routed, planned)

    async def _one(self, routed: RoutedRequest, planned: PlannedOperation) -> Response:
        routed.request.phases.end("parse")
        outcome = await submit(routed.plane, planned)
        routed.request.phases.end("store", " ".join(outcome.systems))
        response = answer_write(routed, planned, outcome)
        response.headers.append((b"location", location_of(planned).encode()))
        return response

    async def _many(
        self, routed: RoutedRequest, identity: Identity, bodies: list[Any], *, is_large: bool
    ) -> Response:
        limit = self._options.batch_limit
        if len(bodies) > limit:
            locations = [Location("", f"at most {limit} objects are allowed")]
            raise Invalid("The list is too long.", locations=locations)
        items = await offload(is_large, _items, routed, identity, bodies)
        routed.request.phases.end("parse")
        answers = await submit_all(routed.plane, items)
        routed.request.phases.end("store")
        results = await render_items(items, answers, minimal=routed.preferences.minimal)
        return Response(200, [JSON_TYPE, NO_STORE], orjson.dumps(results))


def _items(routed: RoutedRequest, identity: Identity, bodies: list[Any]) -> list[Item]:
    return [
        plan_or_refuse(_plan, routed, identity, body, index) for index, body in enumerate(bodies)
    ]


def _plan(
    routed: RoutedRequest, identity: Identity, body: Any, index: int | None
) -> PlannedOperation:
    resource = routed.resource
    document = require_object(body)
    id_ = given_id(document) or object_id(identity, resource.name, index or 0)
    operation = identity.operation(resource.name, id_, index)
    fingerprint = identity.fingerprint
    target = WriteTarget(
        resource, resource.full_selection, id_, operation, ANYTHING, fingerprint, owner=routed.owner
    )
    return build_create(target, document)


def given_id(body: dict[str, Any], pointer: str = "") -> str | None:
    """Return the id in the body, if any; raises `Invalid` if it is no valid id."""
    if "id" not in body:
        return None
    if not isinstance(body["id"], str):
        location = Location(f"{pointer}/id", "a string is expected")
        raise Invalid("The id is not a string.", locations=[location])
    return check_id(body["id"], f"{pointer}/id")


def new_id() -> str:
    """Return an id that sorts after those of earlier milliseconds (RFC 9562, section 5.7)."""
    random = int.from_bytes(os.urandom(10), "big")
    milliseconds = time.time_ns() // 1_000_000
    # 48 bits of time, version 7 and 12 random bits; below them the variant and 62 random bits.
    high = milliseconds << 80 | 7 << 76 | (random >> 64 & 0xFFF) << 64
    return str(uuid.UUID(int=high | _VARIANT | random & _LOW))


def derived_id(digest: str) -> str:
    """Return the id that belongs to 32 hexadecimal digits (RFC 9562, section 5.8)."""
    number = int(digest, 16)
    # The digits themselves, but for the 4 bits of version 8 and the 2 bits of the variant.
    high = number >> 80 << 80 | 8 << 76 | (number >> 64 & 0xFFF) << 64
    return str(uuid.UUID(int=high | _VARIANT | number & _LOW))


def object_id(identity: Identity, class_name: str, index: int = 0) -> str:
    """Return the id of a new object: the same again for the same Idempotency-Key."""
    if identity.key is None:
        return new_id()
    return derived_id(identity.derive("object", class_name, str(index)))
