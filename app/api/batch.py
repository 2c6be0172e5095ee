"""``POST /v1/{database}/batch``: many operations, one request, one result for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import orjson

from app.api.conditions import if_match_condition
from app.api.options import DataOptions
from app.api.resources import ClassResource, Directory
from app.api.responses import JSON_TYPE, NO_STORE
from app.api.routed_request import RoutedRequest
from app.api.submission import Item, render_items, submit_all
from app.api.writes import (
    Builder,
    PlannedOperation,
    WriteTarget,
    build_delete,
    build_json_patch,
    build_merge_patch,
    build_put,
    build_update,
)
from app.http.idempotency import Identity, OperationIds
from app.http.jsonbody import LARGE_BODY, parse_json, require_object
from app.http.message import Response, read_body
from app.http.negotiation import JSON
from app.http.paths import parse_query
from app.http.preconditions import Tags, parse_tags
from app.http.problems import HttpError
from mediator.access.model import Scope
from mediator.base.errors import Invalid, Location, MediatorError
from mediator.base.offload import offload
from mediator.model.operations import ANYTHING, Get
from mediator.schema.ids import check_id

__all__ = ["Batches", "members_of", "plan_item"]

_Addressed: TypeAlias = tuple[dict[str, Any], ClassResource, str | None]
"""The members of an operation, its class, and whose its new objects are."""

_MEMBERS: Final = frozenset({"op", "class", "id", "body", "if_match", "if_none_match"})
_TEXTS: Final = ("op", "class", "id")
_BODILESS: Final = frozenset({"get", "delete"})


def _build_patch(target: WriteTarget, body: Any) -> PlannedOperation:
    """An array is a JSON Patch, an object a merge patch: neither can be the other."""
    return (build_json_patch if isinstance(body, list) else build_merge_patch)(target, body)


_BUILDERS: Final[dict[str, Builder]] = {
    "put": build_put,
    "patch": _build_patch,
    "update": build_update,
    "delete": build_delete,
}


class Batches:
    """Carries out batches."""

    def __init__(self, directory: Directory, options: DataOptions, ids: OperationIds) -> None:
        self._directory = directory
        self._options = options
        self._ids = ids

    async def post(self, routed: RoutedRequest) -> Response:
        """Do every operation; those that are wrong do not keep the others from being done."""
        routed.media_type(JSON)
        parse_query(routed.request.query, frozenset())
        raw = await read_body(routed.request, self._options.max_body_bytes)
        operations = self._operations(parse_json(raw))
        if not operations:  # each of them asks for its class
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
        return Response(200, [JSON_TYPE, NO_STORE], orjson.dumps(results))

    def _operations(self, body: Any) -> list[Any]:
        members = require_object(body)
        operations = members.get("operations")
        limit = self._options.batch_limit
        if members.keys() != {"operations"} or not isinstance(operations, list):
            raise _refuse("/operations", "an array is expected, and nothing beside it")
        if len(operations) > limit:
            raise _refuse("/operations", f"at most {limit} operations are allowed")
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
        addressed: list[_Addressed | MediatorError | HttpError] = []
        for body in operations:
            try:
                members = members_of(body)
                key = name, reads = members["class"], members["op"] == "get"
                if key not in classes:
                    classes[key] = await self._find(routed, name, reads=reads)
                addressed.append((members, *classes[key]))
            except (MediatorError, HttpError) as error:
                addressed.append(error)
        return await offload(is_large, _plan_all, identity, addressed)

    async def _find(
        self, routed: RoutedRequest, name: str, *, reads: bool
    ) -> tuple[ClassResource, str | None]:
        """Find a class that the request may read, or write; and whose its new objects are."""
        routed.access.require(Scope.READ if reads else Scope.WRITE, routed.database, name)
        resource = await self._directory.find(routed.database, name)
        return resource, routed.access.owner_of(routed.database, name)


def _plan_all(
    identity: Identity, addressed: Sequence[_Addressed | MediatorError | HttpError]
) -> list[Item]:
    items: list[Item] = []
    for index, each in enumerate(addressed):
        if not isinstance(each, tuple):
            items.append(each)
            continue
        members, resource, owner = each
        try:
            items.append(plan_item(resource, identity, members, index, owner))
        except (MediatorError, HttpError) as error:
            items.append(error)
    return items


def members_of(body: Any) -> dict[str, Any]:
    """Return the members of one operation of a batch; raises `Invalid` if it cannot be one."""
    members = require_object(body)
    if not members.keys() <= _MEMBERS:
        name = next(name for name in members if name not in _MEMBERS)
        raise _refuse(f"/{name}", "there is no such member")
    op = members.get("op")
    if not (
        isinstance(op, str)
        and isinstance(members.get("class"), str)
        and isinstance(members.get("id"), str)
    ):
        name = next(name for name in _TEXTS if not isinstance(members.get(name), str))
        raise _refuse(f"/{name}", "a string is expected")
    if op != "get" and op not in _BUILDERS:
        raise _refuse("/op", "one of get, put, patch, update, delete is expected")
    if ("body" in members) is (op in _BODILESS):
        raise _refuse("/body", f"{op} takes none" if op in _BODILESS else f"{op} needs one")
    return members


def plan_item(
    resource: ClassResource,
    identity: Identity,
    members: dict[str, Any],
    index: int,
    owner: str | None = None,
) -> PlannedOperation:
    """Plan one operation of a batch, given its members, and whose a new object is."""
    op, id_ = members["op"], check_id(members["id"], "/id")
    whole = resource.full_selection
    required, client_tags = _tags(members, "if_match"), _tags(members, "if_none_match")
    if op == "get":
        return PlannedOperation(
            Get(resource.database, resource.name, id_), resource, whole, client_tags=client_tags
        )
    condition = ANYTHING if required is None else if_match_condition(required, whole)
    operation = identity.operation(resource.name, id_, index)
    fingerprint = identity.fingerprint
    target = WriteTarget(resource, whole, id_, operation, condition, fingerprint, "/body", owner)
    return _BUILDERS[op](target, members.get("body"))


def _tags(members: dict[str, Any], name: str) -> Tags | None:
    """Return the tags of a condition: writes have ``if_match``, reads ``if_none_match``."""
    tags = members.get(name)
    if tags is None:
        return None
    reads = name == "if_none_match"
    if not isinstance(tags, str) or reads is not (members["op"] == "get"):
        raise _refuse(f"/{name}", f"a tag is expected, and only on {'get' if reads else 'writes'}")
    return parse_tags(tags, f"/{name}")


def _refuse(pointer: str, detail: str) -> Invalid:
    return Invalid("The batch is malformed.", locations=[Location(pointer, detail)])
