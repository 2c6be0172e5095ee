"""``POST /v1/{database}/transactions``: writes that commit if their read set is unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.api.batch import plan_item
from app.api.models.operations import ObjectVersion, WriteItem, parse_transaction
from app.api.resources import ClassResource, Directory
from app.api.responses import REPLAYED, answer_json
from app.api.routed_request import RoutedRequest
from app.api.submission import render_items
from app.api.writes import PlannedOperation
from app.http.idempotency import Identity, OperationIds
from app.http.jsonbody import LARGE_BODY
from app.http.message import Response
from app.http.preconditions import parse_tag
from app.http.problems import ROUTE_NOT_FOUND, HttpError
from mediator.access.metered_plane import Transact
from mediator.access.model import Scope
from mediator.base.errors import Invalid, Location, MediatorError
from mediator.base.offload import offload
from mediator.model.operations import Get, WriteOperation
from mediator.schema.ids import check_id
from mediator.transactions.model import CommitRequest, ReadSetEntry

__all__ = ["TransactionRoute"]


@dataclass(eq=False)
class TransactionRoute:
    _transact: Transact | None
    _directory: Directory
    _limit: int
    _ids: OperationIds

    async def post(self, routed: RoutedRequest) -> Response:
        if self._transact is None:
            raise HttpError(ROUTE_NOT_FOUND, "No route of the data API has this path.")
        document, raw = await routed.json_body(self._limit)
        body = parse_transaction(document)
        reads, operations = _read_set(body.reads), body.operations
        if not reads and not operations:  # otherwise each is authorised for its class
            routed.access.require_some(Scope.WRITE, routed.database)
            await self._directory.database(routed.database)
        for entry in reads:
            routed.access.require(Scope.READ, routed.database, entry.class_name)
            routed.access.require_all(routed.database, entry.class_name)
        identity = routed.identity(self._ids, raw)
        with self._ids.claim(identity):
            is_large = len(raw) > LARGE_BODY
            items = await self._items(routed, identity, operations, is_large=is_large)
            transaction = _transaction(routed.database, identity, reads, items, self._ids)
            routed.request.phases.end("parse")
            outcomes = await routed.transact(self._transact)(transaction)
        routed.request.phases.end("store")
        results = await render_items(items, outcomes, minimal=routed.preferences.minimal)
        headers = [REPLAYED] if any(outcome.replayed for outcome in outcomes) else []
        return answer_json(200, {"results": results}, headers)

    async def _items(
        self,
        routed: RoutedRequest,
        identity: Identity,
        operations: Sequence[WriteItem],
        *,
        is_large: bool,
    ) -> list[PlannedOperation]:
        classes: dict[str, ClassResource] = {}
        items = []
        for index, operation in enumerate(operations):
            name = operation["class"]
            routed.access.require(Scope.WRITE, routed.database, name)
            routed.access.require_all(routed.database, name)
            try:
                if name not in classes:
                    classes[name] = await self._directory.find(
                        routed.database, name, routed.access, routed.pinned
                    )
                item = await offload(is_large, plan_item, classes[name], identity, operation, index)
            except (MediatorError, HttpError) as error:
                error.locations = tuple(
                    Location(f"/operations/{index}{location.pointer}", location.detail)
                    for location in error.locations
                )
                raise
            items.append(_prefix_operation(item))
        return items


def _read_set(reads: Sequence[ObjectVersion]) -> list[ReadSetEntry]:
    return [_entry(read, f"/reads/{index}") for index, read in enumerate(reads)]


def _entry(read: ObjectVersion, pointer: str) -> ReadSetEntry:
    id_ = check_id(read.id, f"{pointer}/id")
    if read.etag is None:
        return ReadSetEntry(read.class_name, id_, None)
    tag = parse_tag(read.etag)
    if tag is None:
        detail = "an entity tag of ours is expected, or null if the object was not there"
        locations = [Location(f"{pointer}/etag", detail)]
        raise Invalid("The transaction is malformed.", locations=locations)
    return ReadSetEntry(read.class_name, id_, tag.versions, tag.schema_version)


def _prefix_operation(planned: PlannedOperation) -> PlannedOperation:
    operation = planned.operation
    assert not isinstance(operation, Get)
    # A batch under the same key derives the same operation ids: the prefix separates them.
    planned.operation = replace(operation, operation=f"t-{operation.operation}")
    return planned


def _transaction(
    database: str,
    identity: Identity,
    reads: Sequence[ReadSetEntry],
    items: Sequence[PlannedOperation],
    ids: OperationIds,
) -> CommitRequest:
    name = ids.fresh() if identity.key is None else identity.derive("transaction")
    writes: list[WriteOperation] = []
    for item in items:
        assert not isinstance(item.operation, Get)
        writes.append(item.operation)
    return CommitRequest(database, name, tuple(reads), tuple(writes), identity.fingerprint)
