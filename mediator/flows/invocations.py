"""Invocations by plans: queries of classes, writes that happen once, and HTTP services."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mediator.base.errors import Invalid, Location, NotFound
from mediator.data_plane.port import Admitted, DataPlane, at_once
from mediator.flows.http_request import HttpRequest
from mediator.flows.http_services import HttpServices
from mediator.flows.plan import Query, Write
from mediator.model.operations import Create, Delete, Put, Update, WriteOperation
from mediator.operations.patch import parse_update
from mediator.query.parser import parse_query_document
from mediator.routing.model import ClassRoute
from mediator.schema.ids import check_id

__all__ = ["PlanInvoker"]


def _require_nothing() -> None:
    """Accept every flow."""


@dataclass(frozen=True, slots=True)
class PlanInvoker:
    """Implements `mediator.flows.execution.Invoker` for a database.

    Args:
        _require: Raises an error, not of a single message, if the flow may not be executed now.
    """

    _plane: DataPlane
    _database: str
    _services: HttpServices
    _admitted: Admitted = at_once
    _require: Callable[[], None] = _require_nothing

    async def query(self, query: Query, document: Any) -> list[dict[str, Any]]:
        route = self._route(query.class_name)
        schema = self._plane.model.databases[self._database].schema
        parsed = parse_query_document(document, schema, query.class_name)
        async with self._admitted(self._plane, self._database) as plane:
            self._require()  # the schema may have changed during the wait
            page = await plane.query(parsed.query)
        outcomes = [item.outcome for item in page.items]
        return [
            {"id": outcome.id, **route.codec.encode(outcome.values or {})} for outcome in outcomes
        ]

    async def write(self, write: Write, id_: Any, body: Any, operation: str) -> None:
        if not isinstance(id_, str):
            detail = "must be a string"
            raise Invalid(f"The id {detail}.", locations=[Location("/write/id", detail)])
        write_operation = self._operation(write, check_id(id_, "/write/id"), body, operation)
        async with self._admitted(self._plane, self._database) as plane:
            self._require()
            if await plane.recall(write_operation) is None:
                await plane.write(write_operation)

    async def send(self, request: HttpRequest) -> Any:
        return await self._services.send(request)

    def _operation(self, write: Write, id_: str, body: Any, operation: str) -> WriteOperation:
        route = self._route(write.class_name)
        head = self._database, write.class_name, id_, operation
        fingerprint = operation  # it already identifies the write
        match write.kind:
            case "delete":
                return Delete(*head, fingerprint=fingerprint)
            case "update":
                changes = parse_update(route.schema, route.codec, body, "/write/body")
                return Update(
                    *head,
                    fingerprint=fingerprint,
                    values=route.codec.stamped(changes.values),
                    unset=tuple(changes.unset),
                    operators=tuple(changes.operators),
                )
            case kind:
                values = route.codec.decode_object(body, "/write/body")
                build = Create if kind == "create" else Put
                return build(*head, fingerprint=fingerprint, values=values)

    def _route(self, class_name: str) -> ClassRoute:
        self._require()
        database = self._plane.model.databases.get(self._database)
        route = None if database is None else database.classes.get(class_name)
        if route is None:
            raise NotFound(f"There is no class {class_name} any more.")
        return route
