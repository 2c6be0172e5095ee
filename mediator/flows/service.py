"""Message flows of an installation: their definitions, their messages, and a worker for each."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final, NamedTuple
from uuid import uuid4

from mediator.base.clock import Clock
from mediator.base.concurrency import end
from mediator.base.errors import Conflict, Invalid, NotFound
from mediator.base.observation import FlowCounted, Observer, ignore
from mediator.base.periodic_tasks import PeriodicTask
from mediator.data_plane.admitted import Admitted, at_once
from mediator.data_plane.port import DataPlane
from mediator.flows.http_services import HttpServices
from mediator.flows.invocations import PlanInvoker
from mediator.flows.parser import Flow, check_message, parse_flow
from mediator.flows.partitioning import canonical, describe_grain
from mediator.flows.queue import (
    LEVEL_DIGITS,
    DeadLetter,
    EndedMessages,
    FlowKey,
    FlowLoad,
    MessageQueue,
    NewMessage,
    Replayed,
    Ticket,
)
from mediator.flows.rewriting import describe, rewrite, steps_of_message
from mediator.flows.worker import FlowWorker
from mediator.model.pause import Pause
from mediator.routing.model import DatabaseRoute
from mediator.schema.tree import Schema
from mediator.stores.port import REPEATABLE_S

__all__ = ["MOST_FLOWS", "MOST_MESSAGES", "FlowService", "FlowState", "flow_document"]

MOST_FLOWS: Final = 100
"""Flows of a database."""

MOST_MESSAGES: Final = 1_000
"""Messages of one request, and dead letters of one."""

_FOLLOW_EVERY_S: Final = 1.0
_CREATED: Final = "created"
"""When a flow was created (s since 1970): written down beside its members, which it is none of."""


class FlowState(NamedTuple):
    """A flow as admission control sees it; `database` is the name."""

    id: str
    database: str
    name: str
    load: FlowLoad


@dataclass(eq=False)
class FlowService:
    """Serves flows by a queue that all replicas share; each has one worker for every flow.

    Attributes:
        admitted: Lets in what flows read and write; the composition root sets it.
        is_ending: Whether the process is about to end: streams of results are to end, too.
    """

    _plane: DataPlane
    _queue: MessageQueue
    _replica: str
    _clock: Clock
    _services: HttpServices = field(default_factory=HttpServices)
    _observe: Observer = ignore
    # By a factory: a function that is an attribute of the class would be bound as a method.
    admitted: Admitted = field(default_factory=lambda: at_once, init=False)
    is_ending: bool = field(default=False, init=False)
    _flows: dict[FlowKey, Flow] = field(default_factory=dict, init=False)
    """Those that are executed here: a flow never changes, so no request parses it again."""

    _workers: dict[FlowKey, asyncio.Task[None]] = field(default_factory=dict, init=False)

    def periodic_tasks(self) -> list[PeriodicTask]:
        return [PeriodicTask("follow message flows", _FOLLOW_EVERY_S, self.follow)]

    async def create(self, database: DatabaseRoute, flow: Flow) -> str:
        """Write a flow down, and execute its messages from now on; return its id.

        Raises:
            Conflict: The database has too many flows.
            Invalid: It invokes a host that settings do not list.
        """
        for pointer, url in flow.plan.urls:
            self._services.hosts.check(url.origin, pointer)
        key, created_s = FlowKey(database.id, uuid4().hex), self._clock.now()
        flow = replace(flow, created=datetime.fromtimestamp(created_s, UTC))
        document = {**flow.document, _CREATED: created_s}
        if not await self._queue.put_flow(key, document, flow.latency_s, MOST_FLOWS):
            raise Conflict(f"A database has {MOST_FLOWS} message flows at most.")
        # `follow` may have found it meanwhile.
        if key not in self._workers:
            self._start(key, flow, database.schema.database)
        return key.flow

    async def of_database(self, database: DatabaseRoute) -> dict[str, Flow]:
        """Return the flows of a database by id."""
        keys = sorted(key for key in await self._queue.flows() if key.database == database.id)
        found = [(key.flow, await self._find(key, database)) for key in keys]
        return {id_: flow for id_, flow in found if flow is not None}

    async def find(self, database: DatabaseRoute, flow: str) -> Flow:
        """Raises `NotFound`."""
        found = await self._find(FlowKey(database.id, flow), database)
        if found is None:
            raise NotFound("There is no such message flow.")
        return found

    async def _find(self, key: FlowKey, database: DatabaseRoute) -> Flow | None:
        """Return a flow; None if there is none, or the schema has lost what it needs."""
        if key in self._flows:
            return self._flows[key]
        document = await self._queue.flow(key)
        try:
            return None if document is None else _stored(document, database.schema)
        except Invalid:
            return None

    async def report(self, database: DatabaseRoute, id_: str, flow: Flow) -> dict[str, Any]:
        """Return a flow with its plans, counts and measured numbers as JSON."""
        plan, sizes = flow.plan, await self._queue.report(FlowKey(database.id, id_))
        level, pause = plan.levels[sizes.pop("level")], sizes.pop("paused")
        outbound = describe(steps_of_message(plan.outbound_part))
        return {
            **flow_document(id_, flow),
            "partitioned_by": describe_grain(level),
            "plan": flow.document["plan"],
            "rewritten_plan": describe(rewrite(plan, level)),
            "outbound_plan": outbound,
            "paused": None if pause is None else pause.to_json(),
            **_with_shares(sizes),
        }

    async def states(self) -> list[FlowState]:
        """Return the flows that are executed here, which are all but those just created."""
        names = {route.id: name for name, route in self._plane.model.databases.items()}
        known = [(key, flow) for key, flow in self._flows.items() if key.database in names]
        loads = await self._queue.loads([key for key, _ in known])
        return [
            FlowState(key.flow, names[key.database], flow.name, load)
            for (key, flow), load in zip(known, loads, strict=True)
        ]

    async def pause(self, database: str, flow: str, pause: Pause) -> bool:
        """Let a flow execute no batch for some time; false if there is none."""
        key = self._key(database, flow)
        began = None if key is None else await self._queue.pause(key, pause)
        if began:
            self._observe(FlowCounted(database, flow, {"pauses": 1}))
        return began is not None

    async def resume(self, database: str, flow: str) -> bool:
        """End a pause; false if there is none."""
        key = self._key(database, flow)
        return key is not None and await self._queue.resume(key)

    async def end_pauses(self, before: int) -> None:
        """End the pauses by rules of versions before this one."""
        await self._queue.end_pauses(list(self._flows), before)

    def _key(self, database: str, flow: str) -> FlowKey | None:
        route = self._plane.model.databases.get(database)
        return None if route is None else FlowKey(route.id, flow)

    async def drop(self, database: DatabaseRoute, flow: str) -> None:
        """Remove a flow with its messages; raises `NotFound`."""
        key = FlowKey(database.id, flow)
        if not await self._queue.drop_flow(key):
            raise NotFound("There is no such message flow.")
        await self._stop([key])

    async def enqueue(
        self,
        key: FlowKey,
        flow: Flow,
        messages: Sequence[tuple[str, Any]],
        retry: tuple[str, str] | None,
    ) -> bool:
        """Queue messages by their tickets; false if they were queued before under the same key.

        Raises:
            Invalid: A message has not the attributes of the plan; none is queued then.
            TooManyRequests: The queue is full.
        """
        queued = [
            _new(flow, ticket, message, f"/messages/{index}")
            for index, (ticket, message) in enumerate(messages)
        ]
        return await self._queue.enqueue(key, queued, retry)

    async def ticket(self, key: FlowKey, ticket: str) -> Ticket:
        """Return the state of a message; raises `NotFound`."""
        found = await self._queue.ticket(key, ticket)
        if found is None:
            detail = "There is no such message, or its result is kept no longer."
            raise NotFound(detail)
        return found

    async def results(self, key: FlowKey, after: int | None, most: int) -> EndedMessages:
        """Return messages that ended behind a position; raises `ResultGone`."""
        return await self._queue.results(key, after, most)

    async def dead_letters(self, key: FlowKey, after: int = 0, most: int = 100) -> list[DeadLetter]:
        return await self._queue.dead_letters(key, after, most)

    async def replay(self, key: FlowKey, flow: Flow, *, expired: bool = False) -> Replayed:
        """Queue dead letters again, at most `MOST_MESSAGES`.

        Args:
            key: The flow's.
            flow: What it does.
            expired: Whether also those whose writes stores may have forgotten, so that what was
                written already is written again.

        Raises:
            Conflict: All there are have expired.
        """
        repeats = expired or not flow.plan.outbound_part  # a flow that writes nothing may always
        letters, left = await self._replayable(key, expired=repeats)
        if left and not letters:
            detail = (
                f"All {left} dead letters are older than {REPEATABLE_S // 3600} hours: what they"
                " have written already would be written again. Replay them with expired=true if"
                " that does no harm."
            )
            raise Conflict(detail, extra={"expired": left})
        messages = [_new(flow, each.ticket, each.document["message"], "") for each in letters]
        replayed = await self._queue.replay(key, messages) if messages else 0
        return Replayed(replayed, left)

    async def _replayable(self, key: FlowKey, *, expired: bool) -> tuple[list[DeadLetter], int]:
        """Return the first dead letters that may be replayed, and how many before them may not."""
        letters: list[DeadLetter] = []
        left = after = 0
        while page := await self._queue.dead_letters(key, after, MOST_MESSAGES):
            after = page[-1].position
            fresh = [each for each in page if expired or each.age_s < REPEATABLE_S]
            left += len(page) - len(fresh)
            letters += fresh
            if len(letters) >= MOST_MESSAGES:
                break
        return letters[:MOST_MESSAGES], left

    async def follow(self) -> None:
        """Start workers of new flows, and end those of flows that are gone."""
        present = await self._queue.flows()
        databases = {route.id: route for route in self._plane.model.databases.values()}
        for key in present - self._workers.keys():
            database = databases.get(key.database)
            flow = None if database is None else await self._find(key, database)
            # A request may have started it meanwhile.
            if database is not None and flow is not None and key not in self._workers:
                self._start(key, flow, database.schema.database)
        gone = [k for k in self._workers if k not in present or k.database not in databases]
        await self._stop(gone)

    async def close(self) -> None:
        await self._stop(list(self._workers))
        await self._services.close()

    def _start(self, key: FlowKey, flow: Flow, database: str) -> None:
        invoker = PlanInvoker(self._plane, database, self._services, self._admit)
        # A token for each worker: one that was stopped must not hold what the next one takes.
        token = f"{self._replica}:{uuid4().hex}"

        def count(counts: Mapping[str, int], wait_s: float | None) -> None:
            self._observe(FlowCounted(database, key.flow, counts, wait_s))

        worker = FlowWorker(key, flow, self._queue, invoker, token, self._clock, count)
        self._flows[key] = flow
        self._workers[key] = asyncio.create_task(worker.run())

    def _admit(self, plane: DataPlane, database: str) -> AbstractAsyncContextManager[DataPlane]:
        # `admitted` may be set after the first workers were started.
        return self.admitted(plane, database)

    async def _stop(self, keys: Sequence[FlowKey]) -> None:
        for key in keys:
            self._flows.pop(key, None)
        await end([self._workers.pop(key) for key in keys if key in self._workers])


def flow_document(id_: str, flow: Flow) -> dict[str, Any]:
    return {
        "id": id_,
        "name": flow.name,
        "latency_s": flow.latency_s,
        "ordered": flow.ordered,
        "objective": flow.objective,
    }


def _stored(document: Mapping[str, Any], schema: Schema) -> Flow:
    """Read a flow as it was written down; raises `Invalid`."""
    sent = {name: member for name, member in document.items() if name != _CREATED}
    created = datetime.fromtimestamp(document.get(_CREATED, 0.0), UTC)
    return replace(parse_flow(sent, schema), created=created)


def _new(flow: Flow, ticket: str, message: Any, pointer: str) -> NewMessage:
    body = check_message(flow.plan, message, pointer)
    values = "".join(_digest(canonical(message, level)) for level in flow.plan.levels)
    return NewMessage(ticket, values, body)


def _digest(value: bytes) -> str:
    """Return a value in `LEVEL_DIGITS`: it may be long."""
    return blake2b(value, digest_size=LEVEL_DIGITS // 2).hexdigest()


def _with_shares(report: Mapping[str, Any]) -> dict[str, Any]:
    counts = report["counts"]
    ended = counts.get("done", 0) + counts.get("failed", 0)
    share = counts.get("late", 0) / ended if ended else None
    return {**report, "share_beyond_bound": share}
