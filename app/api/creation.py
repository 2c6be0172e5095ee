"""``POST /v1/{database}/{class}``: creates one object or many, with given or generated ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.api.object_ids import id_in_body, object_id
from app.api.options import DataOptions
from app.api.responses import answer_json, answer_write, location_of
from app.api.routed_request import RoutedRequest
from app.api.submission import Item, plan_or_refuse, render_items, submit, submit_all
from app.api.writes import PlannedOperation, WriteTarget, build_create
from app.http.idempotency import Identity, OperationIds
from app.http.jsonbody import LARGE_BODY, require_object
from app.http.message import Response
from mediator.base.errors import Invalid, Location
from mediator.base.offload import offload
from mediator.model.operations import ANYTHING

__all__ = ["Creation"]


@dataclass(eq=False)
class Creation:
    _options: DataOptions
    _ids: OperationIds

    async def post(self, routed: RoutedRequest) -> Response:
        body, raw = await routed.json_body(self._options.max_body_bytes)
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
        return answer_json(200, results)


def _items(routed: RoutedRequest, identity: Identity, bodies: list[Any]) -> list[Item]:
    return [
        plan_or_refuse(_plan, routed, identity, body, index) for index, body in enumerate(bodies)
    ]


def _plan(
    routed: RoutedRequest, identity: Identity, body: Any, index: int | None
) -> PlannedOperation:
    resource = routed.resource
    document = require_object(body)
    id_ = id_in_body(document) or object_id(identity, resource.name, index or 0)
    operation = identity.operation(resource.name, id_, index)
    fingerprint = identity.fingerprint
    target = WriteTarget(
        resource, resource.full_selection, id_, operation, ANYTHING, fingerprint, owner=routed.owner
    )
    return build_create(target, document)
