"""``/v1/{database}/message-flows``: flows, their messages, and dead letters."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import orjson

from app.api.dependents import find_dependent, refuse_content, require_objects, require_service
from app.api.following import EventFeed, Followers, Item, Page, last_event_id
from app.api.models.common import RESULT_POSITION
from app.api.models.flows import DeadLetterParameters, EndedParameters, ReplayParameters
from app.api.resources import Directory
from app.api.responses import NO_STORE, REPLAYED, answer_created, answer_json
from app.api.routed_request import RoutedRequest
from app.http.idempotency import OperationIds
from app.http.jsonbody import require_list
from app.http.message import Response
from app.http.validation import parse_parameters
from mediator.base.errors import Unavailable
from mediator.flows.allowed_flows import RefusedFlow
from mediator.flows.parser import Flow, parse_flow
from mediator.flows.queue import EndedMessage, FlowKey
from mediator.flows.service import MAX_MESSAGES, FlowService, flow_document
from mediator.model.result_position import ResultPosition
from mediator.routing.model import DatabaseRoute

__all__ = ["MessageFlows"]

_MAX_FLOW_BYTES: Final = 2**16
"""Bytes of a flow: every replica keeps all flows in memory."""

_POLL_S: Final = 0.25


@dataclass(eq=False)
class MessageFlows:
    """The routes of flows.

    A flow does not act on behalf of the senders of messages. So a request for a flow needs the
    permission to write the whole database, and to read all objects of each class of the plan, as
    they are and as they were since the flow was created.
    """

    _directory: Directory
    _flows: FlowService | None
    _ids: OperationIds
    _limit: int
    _followers: Followers

    async def post(self, routed: RoutedRequest) -> Response:
        """Create a flow."""
        flows = self._service()
        body, _ = await routed.json_body(min(_MAX_FLOW_BYTES, self._limit))
        database = await self._directory.database(routed.database)
        parsed = parse_flow(body, database.schema)
        for name in parsed.class_names:
            routed.access.require_changes(routed.database, name)
        id_ = await flows.create(database, parsed)
        path = f"{routed.database}/message-flows/{id_}"
        return answer_created(path, flow_document(id_, parsed))

    async def list(self, routed: RoutedRequest) -> Response:
        refuse_content(routed)
        database = await self._directory.database(routed.database)
        flows = await self._service().of_database(database)
        return answer_json(200, {"items": [flow_document(*flow) for flow in flows.items()]})

    async def get(self, routed: RoutedRequest) -> Response:
        flows, database, flow = await self._find_any(routed)
        return answer_json(200, await flows.report(database, routed.id, flow))

    async def delete(self, routed: RoutedRequest) -> Response:
        flows, database, _ = await self._find_any(routed)
        await flows.drop(database, routed.id)
        return Response(204, [NO_STORE])

    async def send(self, routed: RoutedRequest) -> Response:
        """Queue messages: 202 with a ticket for each."""
        flows = self._service()
        body, raw = await routed.json_body(self._limit)
        database, declared = await find_dependent(self._directory, routed, flows.find)
        flow = _require_executed(routed, declared)
        if flow.plan.writes_classes and routed.access.meter.room <= 0:
            raise routed.access.meter.full()
        messages = require_list(body, "messages", MAX_MESSAGES)
        identity = routed.identity(self._ids, raw)
        retry, seed = identity.retry("messages", routed.id), uuid4().hex
        if retry is not None:  # a retry gets the same tickets
            seed = identity.derive("tickets", routed.id, retry[1])
        key = FlowKey(database.id, routed.id)
        receipt = await flows.enqueue(key, flow, messages, seed, retry)
        return answer_json(202, {"tickets": receipt.tickets}, [] if receipt.is_new else [REPLAYED])

    async def ticket(self, routed: RoutedRequest) -> Response:
        flows, database, _ = await self._find(routed)
        status = await flows.ticket(FlowKey(database.id, routed.id), routed.ticket)
        return answer_json(200, _state_of(routed.ticket, status.state, status.document))

    async def results(self, routed: RoutedRequest) -> Response:
        """Return messages in the order in which they ended: a page, or endless events."""
        flows, database, flow = await self._find(routed, with_parameters=True)
        page = parse_parameters(EndedParameters, routed.request.query)
        start = last_event_id(routed, RESULT_POSITION) or page.after
        key = FlowKey(database.id, routed.id)

        async def read(
            after: ResultPosition | None, limit: int, wait_s: float
        ) -> Page[ResultPosition | None]:
            await asyncio.sleep(min(wait_s, _POLL_S))
            try:
                ended = await flows.results(key, after, limit)
            except Unavailable:
                if not wait_s:
                    raise
                return Page([], after)  # the next poll can succeed
            return Page([*map(_item, ended.items)], ended.position)

        async def check() -> bytes:
            require_objects(routed, flow)
            return b""

        names = "items", "position"
        feed = EventFeed("message", names, read, check)
        position = None if start is None else ResultPosition.parse(start)
        return await self._followers.answer(routed, feed, position, page.limit)

    async def dead_letters(self, routed: RoutedRequest) -> Response:
        flows, database, _ = await self._find(routed, with_parameters=True)
        page = parse_parameters(DeadLetterParameters, routed.request.query)
        key = FlowKey(database.id, routed.id)
        letters = await flows.dead_letters(key, page.after, page.limit)
        items = [
            {
                "ticket": letter.ticket,
                "message": letter.document["message"],
                "error": _error_of(letter.document),
                "age_s": letter.age_s,
            }
            for letter in letters
        ]
        next_position = letters[-1].position if len(letters) == page.limit else None
        return answer_json(200, {"items": items, "next": next_position})

    async def replay(self, routed: RoutedRequest) -> Response:
        """Requeue dead letters under their tickets."""
        flows, database, flow = await self._find(routed, with_parameters=True)
        parameters = parse_parameters(ReplayParameters, routed.request.query)
        key, expired = FlowKey(database.id, routed.id), parameters.expired == "true"
        counts = await flows.replay(key, flow, expired=expired)
        return answer_json(202, counts._asdict())

    def _service(self) -> FlowService:
        return require_service(self._flows, "are no message flows")

    async def _find(
        self, routed: RoutedRequest, *, with_parameters: bool = False
    ) -> tuple[FlowService, DatabaseRoute, Flow]:
        """Find an executed flow, if the sender may see its stored messages."""
        flows, database, flow = await self._find_any(routed, with_parameters=with_parameters)
        return flows, database, _require_executed(routed, flow)

    async def _find_any(
        self, routed: RoutedRequest, *, with_parameters: bool = False
    ) -> tuple[FlowService, DatabaseRoute, Flow | RefusedFlow]:
        """Find the flow of a bodiless request, executed or not, if the sender may see it."""
        refuse_content(routed, with_parameters=with_parameters)
        flows = self._service()
        return flows, *await find_dependent(self._directory, routed, flows.find)


def _require_executed(routed: RoutedRequest, flow: Flow | RefusedFlow) -> Flow:
    """Return the flow if it is executed; raise `Conflict`, and the errors of `require_objects`."""
    if isinstance(flow, RefusedFlow):
        raise flow.error()
    # Its stored messages can contain objects as they were since it was created.
    require_objects(routed, flow)
    return flow


def _state_of(ticket: str, state: str, document: Any) -> dict[str, Any]:
    """Return the state of a message as JSON; `document` is its result or dead letter."""
    status: dict[str, Any] = {"ticket": ticket, "state": state}
    if state == "failed":
        status |= {"error": _error_of(document)}
    elif state == "done":
        status |= {"result": document}
    return status


def _error_of(letter: Any) -> dict[str, Any]:
    """Return the reason in a dead letter."""
    return {"detail": letter["detail"], "errors": letter["errors"]}


def _item(message: EndedMessage) -> Item:
    status = _state_of(message.ticket, message.end, message.document)
    return Item(str(message.position), orjson.dumps(status))
