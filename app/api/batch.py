"""``POST /v1/{database}/batch``: many operations, one request, one result for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from app.api.conditions import if_match_condition
from app.api.models.operations import BatchItem, CreateItem, parse_batch, parse_operation
from app.api.object_ids import id_in_body, object_id
from app.api.options import DataOptions
from app.api.resources import ClassResource, Directory, FieldSelection
from app.api.responses import answer_json
from app.api.routed_request import RoutedRequest
from app.api.submission import Item, render_items, submit_all
from app.api.writes import (
    Builder,
    PlannedOperation,
    WriteTarget,
    build_create,
    build_delete,
    build_patch,
    build_put,
    build_update,
)
from app.http.idempotency import Identity, OperationIds
from app.http.jsonbody import LARGE_BODY
from app.http.message import Response
from app.http.preconditions import Tags, parse_tags
from app.http.problems import HttpError
from mediator.access.model import Scope
from mediator.base.errors import Invalid, Location, MediatorError, PreconditionFailed
from mediator.base.offload import offload
from mediator.model.operations import ANYTHING, NEVER, Condition, Get
from mediator.schema.ids import check_id

__all__ = ["Batches", "plan_item"]

_RoutedItem: TypeAlias = tuple[BatchItem, ClassResource, str | None]
"""An operation, its class, and the subject that owns its new objects."""


_BUILDERS: Final[dict[str, Builder]] = {
    "create": build_create,
    "put": build_put,
    "patch": build_patch,
    "update": build_update,
    "delete": build_delete,
}


@dataclass(eq=False)
class Batches:
    _directory: Directory
    _options: DataOptions
    _ids: OperationIds

    async def post(self, routed: RoutedRequest) -> Response:
        """Execute every operation; a malformed one does not fail the others."""
        body, raw = await routed.json_body(self._options.max_body_bytes)
        operations = self._operations(body)
        if not operations:  # otherwise each is authorised for its class
            routed.access.require_some(Scope.READ, routed.database)
            await self._directory.database(routed.database)
        identity = routed.identity(self._ids, raw)
        with self._ids.claim(identity):
            is_large = len(raw) > LARGE_BODY
            items = await self._items(routed, identity, operations, is_large=is_large)
            routed.request.phases.end("parse")
            answers = await submit_all(routed.plane, items, whole=routed.preference().whole)
        routed.request.phases.end("store")
        results = await render_items(items, answers, minimal=routed.preferences.minimal)
        return answer_json(200, results)

    def _operations(self, body: Any) -> list[Any]:
        operations, limit = parse_batch(body), self._options.batch_limit
        if len(operations) > limit:
            locations = [Location("/operations", f"at most {limit} operations are allowed")]
            raise Invalid("The batch is malformed.", locations=locations)
        return operations

    async def _items(
        self,
        routed: RoutedRequest,
        identity: Identity,
        operations: Sequence[Any],
        *,
        is_large: bool,
    ) -> list[Item]:
        classes: dict[tuple[str, bool], tuple[ClassResource, str | None]] = {}
        routed_items: list[_RoutedItem | MediatorError | HttpError] = []
        for body in operations:
            try:
                operation = parse_operation(body)
                key = name, reads = operation["class"], operation["op"] == "get"
                if key not in classes:
                    classes[key] = await self._find(routed, name, reads=reads)
                routed_items.append((operation, *classes[key]))
            except (MediatorError, HttpError) as error:
                routed_items.append(error)
        return await offload(is_large, _plan_all, identity, routed_items)

    async def _find(
        self, routed: RoutedRequest, name: str, *, reads: bool
    ) -> tuple[ClassResource, str | None]:
        """Authorise access to a class; return it, and the owner of its new objects."""
        routed.access.require(Scope.READ if reads else Scope.WRITE, routed.database, name)
        resource = await self._directory.find(routed.database, name, routed.access, routed.pinned)
        return resource, routed.access.owner_of(routed.database, name)


def _plan_all(
    identity: Identity, routed_items: Sequence[_RoutedItem | MediatorError | HttpError]
) -> list[Item]:
    items: list[Item] = []
    for index, item in enumerate(routed_items):
        if not isinstance(item, tuple):
            items.append(item)
            continue
        operation, resource, owner = item
        try:
            items.append(plan_item(resource, identity, operation, index, owner))
        except (MediatorError, HttpError) as error:
            items.append(error)
    return items


def _new_id(resource: ClassResource, identity: Identity, item: CreateItem, index: int) -> str:
    return id_in_body(item["body"], "/body") or object_id(identity, resource.name, index)


def _condition(tags: Tags, selection: FieldSelection, identity: Identity) -> Condition:
    """Return the condition of a write; one that no tag can meet is refused, unless it has a key.

    With a key, the write may repeat an earlier one.
    """
    try:
        return if_match_condition(tags, selection)
    except PreconditionFailed:
        if identity.key is None:
            raise
        return NEVER


def plan_item(
    resource: ClassResource,
    identity: Identity,
    item: BatchItem,
    index: int,
    owner: str | None = None,
) -> PlannedOperation:
    """Plan the operation at `index` of a request; `owner` owns new objects that name no owner."""
    selection = resource.full_selection
    id_ = check_id(item["id"], "/id") if "id" in item else _new_id(resource, identity, item, index)
    if item["op"] == "get":
        tags = item.get("if_none_match")
        client_tags = None if tags is None else parse_tags(tags, "/if_none_match")
        get = Get(resource.database, resource.name, id_)
        return PlannedOperation(get, resource, selection, client_tags=client_tags)
    condition, tags = ANYTHING, None if item["op"] == "create" else item.get("if_match")
    if tags is not None:
        condition = _condition(parse_tags(tags, "/if_match"), selection, identity)
    operation = identity.operation(resource.name, id_, index)
    head = resource, selection, id_, operation, condition, identity.fingerprint
    return _BUILDERS[item["op"]](WriteTarget(*head, "/body", owner), item.get("body"))
