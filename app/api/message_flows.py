"""``/v1/{database}/message-flows``: flows, their messages, and what failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import orjson

from app.api.models.flows import DeadLetterParameters
from app.api.resources import Directory
from app.api.responses import JSON_TYPE, NO_STORE, REPLAYED
from app.api.routed_request import RoutedRequest
from app.http.idempotency import Identity, OperationIds
from app.http.jsonbody import parse_json, require_object
from app.http.message import Headers, Response, forbid_body, read_body
from app.http.negotiation import JSON
from app.http.paths import parse_query
from app.http.validation import parse_parameters
from mediator.base.errors import Invalid, Location, Unavailable
from mediator.flows.parser import Flow, parse_flow
from mediator.flows.plan import Plan
from mediator.flows.queue import FlowKey
from mediator.flows.service import MOST_MESSAGES, FlowService, flow_document
from mediator.routing.model import DatabaseRoute

__all__ = ["MessageFlows"]

_NO_MEMBERS: Final = frozenset[str]()


@dataclass(eq=False)
class MessageFlows:
    """The routes of flows.

    What a flow does is not done in the name of who sends a message. So a request for a flow needs
    the right to write the whole database, and to see all objects of each class of the plan.
    """

    _directory: Directory
    _flows: FlowService | None
    _ids: OperationIds
    _limit: int

    async def post(self, routed: RoutedRequest) -> Response:
        """Create a flow."""
        flows = self._service()
        body, _, database = await self._body(routed)
        parsed = parse_flow(body, database.schema)
        _require_all(routed, parsed.plan)
        id_ = await flows.create(database, parsed)
        location = f"/v1/{routed.database}/message-flows/{id_}".encode()
        return _answer(201, flow_document(id_, parsed), [(b"location", location)])

    async def list(self, routed: RoutedRequest) -> Response:
        flows, database = self._service(), await self._database(routed)
        found = await flows.of_database(database)
        return _answer(200, {"items": [flow_document(*each) for each in found.items()]})

    async def get(self, routed: RoutedRequest) -> Response:
        flows, database, flow = await self._find(routed)
        return _answer(200, await flows.report(database, routed.id, flow))

    async def delete(self, routed: RoutedRequest) -> Response:
        flows, database, _ = await self._find(routed)
        await flows.drop(database, routed.id)
        return Response(204, [NO_STORE])

    async def send(self, routed: RoutedRequest) -> Response:
        """Queue messages: 202 with a ticket for each."""
        flows = self._service()
        body, raw, database = await self._body(routed)
        flow = await flows.find(database, routed.id)
        _require_all(routed, flow.plan)
        if flow.plan.writes_classes and routed.access.meter.room <= 0:
            raise routed.access.meter.full()
        messages = _messages(body)
        identity = routed.identity(self._ids, raw)
        tickets = [_ticket(identity, routed.id, index) for index in range(len(messages))]
        retry = None
        if identity.key is not None:
            assert identity.fingerprint is not None
            retry = identity.derive("messages", routed.id), identity.fingerprint
        key = FlowKey(database.id, routed.id)
        pairs = list(zip(tickets, messages, strict=True))
        is_new = await flows.enqueue(key, flow, pairs, retry)
        return _answer(202, {"tickets": tickets}, [] if is_new else [REPLAYED])

    async def ticket(self, routed: RoutedRequest) -> Response:
        flows, database, _ = await self._find(routed)
        found = await flows.ticket(FlowKey(database.id, routed.id), routed.ticket)
        document: dict[str, Any] = {"ticket": routed.ticket, "state": found.state}
        if found.state == "failed":
            document |= {"error": _error(found.document)}
        elif found.state == "done":
            document |= {"result": found.document}
        return _answer(200, document)

    async def dead_letters(self, routed: RoutedRequest) -> Response:
        flows, database, _ = await self._find(routed, with_parameters=True)
        page = parse_parameters(DeadLetterParameters, routed.request.query)
        key = FlowKey(database.id, routed.id)
        letters = await flows.dead_letters(key, page.after, page.limit)
        items = [
            {
                "ticket": letter.ticket,
                "message": letter.document["message"],
                "error": _error(letter.document),
            }
            for letter in letters
        ]
        following = letters[-1].position if len(letters) == page.limit else None
        return _answer(200, {"items": items, "next": following})

    async def replay(self, routed: RoutedRequest) -> Response:
        """Queue dead letters again, under their tickets."""
        flows, database, flow = await self._find(routed)
        return _answer(202, {"replayed": await flows.replay(FlowKey(database.id, routed.id), flow)})

    def _service(self) -> FlowService:
        if self._flows is None:
            detail = "There are no message flows here: PORTOLAN_COORDINATION_URL is not set."
            raise Unavailable(detail, system="coordination", retry_after_s=60)
        return self._flows

    async def _body(self, routed: RoutedRequest) -> tuple[Any, bytes, DatabaseRoute]:
        routed.media_type(JSON)
        parse_query(routed.request.query, _NO_MEMBERS)
        raw = await read_body(routed.request, self._limit)
        body = parse_json(raw)
        return body, raw, await self._directory.database(routed.database)

    async def _database(self, routed: RoutedRequest) -> DatabaseRoute:
        forbid_body(routed.request)
        parse_query(routed.request.query, _NO_MEMBERS)
        return await self._directory.database(routed.database)

    async def _find(
        self, routed: RoutedRequest, *, with_parameters: bool = False
    ) -> tuple[FlowService, DatabaseRoute, Flow]:
        """Find the flow of a request without a body, whose sender may see it."""
        forbid_body(routed.request)
        if not with_parameters:
            parse_query(routed.request.query, _NO_MEMBERS)
        flows, database = self._service(), await self._directory.database(routed.database)
        flow = await flows.find(database, routed.id)
        _require_all(routed, flow.plan)
        return flows, database, flow


def _require_all(routed: RoutedRequest, plan: Plan) -> None:
    for name in sorted(plan.reads_classes | plan.writes_classes):
        routed.access.require_all(routed.database, name)


def _messages(body: Any) -> list[Any]:
    messages = require_object(body).get("messages")
    if not isinstance(messages, list) or not 1 <= len(messages) <= MOST_MESSAGES:
        locations = [Location("/messages", f"1 to {MOST_MESSAGES} messages are expected")]
    else:
        locations = [
            Location(f"/{name}", "is not known here") for name in body if name != "messages"
        ]
    if locations:
        raise Invalid("The body has no messages that can be queued.", locations=locations)
    assert isinstance(messages, list)
    return messages


def _ticket(identity: Identity, flow: str, index: int) -> str:
    """Return 32 hexadecimal digits, the same for a request that comes again under its key."""
    return uuid4().hex if identity.key is None else identity.derive("ticket", flow, str(index))


def _error(letter: Any) -> dict[str, Any]:
    return {"detail": letter["detail"], "errors": letter["errors"]}


def _answer(status: int, document: Any, headers: Headers | None = None) -> Response:
    return Response(status, [JSON_TYPE, NO_STORE, *(headers or ())], orjson.dumps(document))
