"""Message flows of an installation: definitions, messages, and one worker per flow."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from typing import Any, Final, NamedTuple
from uuid import uuid4

from mediator.base.clock import Clock
from mediator.base.concurrency import end
from mediator.base.errors import Conflict, NotFound
from mediator.base.observation import FlowCounted, Observer, ignore
from mediator.base.periodic_tasks import PeriodicTask
from mediator.data_plane.port import Admitted, DataPlane, at_once
from mediator.flows.allowed_flows import AllowedFlows, NotAllowed, RefusedFlow, stored_flow
from mediator.flows.http_services import HttpServices
from mediator.flows.invocations import PlanInvoker
from mediator.flows.message_check import check_message
from mediator.flows.parser import OBJECTIVES, Flow
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
from mediator.flows.tickets import tickets_like, tickets_of
from mediator.flows.worker import FlowWorker
from mediator.model.pause import Pause
from mediator.model.result_position import ResultPosition
from mediator.routing.model import DatabaseRoute
from mediator.stores.port import REPEATABLE_S

__all__ = ["MAX_FLOWS", "MAX_MESSAGES", "FlowService", "FlowState", "Queued", "flow_document"]

MAX_FLOWS: Final = 100
"""Maximum flows of a database."""

MAX_MESSAGES: Final = 1_000
"""Maximum messages, or dead letters, of one request."""

_FOLLOW_INTERVAL_S: Final = 1.0


class FlowState(NamedTuple):
    """A flow as admission control sees it; `database` is the name."""

    id: str
    database: str
    name: str
    load: FlowLoad


class Queued(NamedTuple):
    """The tickets of messages; `is_new`: they were not queued before by the same request."""

    tickets: list[str]
    is_new: bool


@dataclass(eq=False)
class FlowService:
    """Serves flows with a queue shared by all replicas, each with one worker per flow.

    Attributes:
        admitted: Admits reads and writes of flows; the composition root sets it.
    """

    _plane: DataPlane
    _queue: MessageQueue
    _replica: str
    _clock: Clock
    _services: HttpServices = field(default_factory=HttpServices)
    _observe: Observer = ignore
    # By a factory: a function as a class attribute would be bound as a method.
    admitted: Admitted = field(default_factory=lambda: at_once, init=False)
    _allowed: AllowedFlows = field(default_factory=AllowedFlows, init=False)
    _workers: dict[FlowKey, asyncio.Task[None]] = field(default_factory=dict, init=False)

    def periodic_tasks(self) -> list[PeriodicTask]:
        return [PeriodicTask("follow message flows", _FOLLOW_INTERVAL_S, self.follow)]

    async def create(self, database: DatabaseRoute, flow: Flow) -> str:
        """Store a flow, and execute its messages from now on; return its id.

        Raises:
            Conflict: The database has too many flows.
            Invalid: It invokes a host that settings do not list.
        """
        for pointer, url in flow.plan.urls:
            self._services.hosts.check(url.origin, pointer)
        key = FlowKey(database.id, uuid4().hex)
        flow = replace(flow, created=datetime.fromtimestamp(self._clock.now(), UTC))
        if not await self._queue.put_flow(key, stored_flow(flow), flow.latency_s, MAX_FLOWS):
            raise Conflict(f"A database has {MAX_FLOWS} message flows at most.")
        # `follow` may have found it meanwhile.
        if key not in self._workers:
            self._start(key, flow, database)
        return key.flow

    async def of_database(self, database: DatabaseRoute) -> dict[str, Flow | RefusedFlow]:
        """Return the flows of a database by id, including those that its schema now refuses."""
        keys = sorted(key for key in await self._queue.flows() if key.database == database.id)
        flows = [(key.flow, await self._find(key, database)) for key in keys]
        return {id_: flow for id_, flow in flows if flow is not None}

    async def find(self, database: DatabaseRoute, flow: str) -> Flow | RefusedFlow:
        """Return a flow, executed or not; raises `NotFound`."""
        result = await self._find(FlowKey(database.id, flow), database)
        if result is None:
            raise NotFound("There is no such message flow.")
        return result

    async def _find(self, key: FlowKey, database: DatabaseRoute) -> Flow | RefusedFlow | None:
        document = self._allowed.document(key) or await self._queue.flow(key)
        if document is None:
            return None
        return self._allowed.parse(key, document, database.schema)

    async def report(
        self, database: DatabaseRoute, id_: str, flow: Flow | RefusedFlow
    ) -> dict[str, Any]:
        """Return a flow with its counts and measurements, and its plans if it is executed."""
        sizes = await self._queue.report(FlowKey(database.id, id_))
        level, pause = sizes.pop("level"), sizes.pop("paused")
        return {
            **flow_document(id_, flow),
            **(_plans(flow, level) if isinstance(flow, Flow) else {}),
            "paused": None if pause is None else pause.to_json(),
            **_with_shares(sizes),
        }

    async def states(self) -> list[FlowState]:
        """Return the flows executed here: all except those just created."""
        names = {route.id: name for name, route in self._plane.model.databases.items()}
        flows = [
            (key, flow) for key, flow in self._allowed.executed().items() if key.database in names
        ]
        loads = await self._queue.loads([key for key, _ in flows])
        return [
            FlowState(key.flow, names[key.database], flow.name, load)
            for (key, flow), load in zip(flows, loads, strict=True)
        ]

    async def pause(self, database: str, flow: str, pause: Pause) -> bool:
        """Pause the execution of a flow for some time; false if none exists."""
        key = self._key(database, flow)
        started = None if key is None else await self._queue.pause(key, pause)
        if started:
            self._observe(FlowCounted(database, flow, {"pauses": 1}))
        return started is not None

    async def resume(self, database: str, flow: str) -> bool:
        """End a pause; false if none exists."""
        key = self._key(database, flow)
        return key is not None and await self._queue.resume(key)

    async def end_pauses(self, before: int) -> None:
        """End the pauses by rules of versions before this one."""
        await self._queue.end_pauses(self._allowed.keys(), before)

    def _key(self, database: str, flow: str) -> FlowKey | None:
        route = self._plane.model.databases.get(database)
        return None if route is None else FlowKey(route.id, flow)

    async def drop(self, database: DatabaseRoute, flow: str) -> None:
        """Remove a flow with its messages, allowed or not; raises `NotFound`."""
        key = FlowKey(database.id, flow)
        if not await self._queue.drop_flow(key):
            raise NotFound("There is no such message flow.")
        await self._stop([key])

    async def enqueue(
        self,
        key: FlowKey,
        flow: Flow,
        messages: Sequence[Any],
        seed: str,
        retry: tuple[str, str] | None,
    ) -> Queued:
        """Queue messages.

        Args:
            key: The flow's.
            flow: The parsed flow.
            messages: At least one.
            seed: Unique to this request, but equal when it is repeated.
            retry: Its Idempotency-Key, which is remembered for a day, and its fingerprint.

        Raises:
            Invalid: A message does not have the plan's attributes; then none is queued.
            TooManyRequests: The queue is full.
            IdempotencyReused: The key was used for other messages.
        """
        tickets = tickets_of(seed, self._clock.now(), len(messages))
        queued = [
            _new_message(flow, ticket, message, f"/messages/{index}")
            for index, (ticket, message) in enumerate(zip(tickets, messages, strict=True))
        ]
        first = await self._queue.enqueue(key, queued, retry)
        if first is None:
            return Queued(tickets, is_new=True)
        return Queued(tickets_like(first, len(messages)), is_new=False)

    async def ticket(self, key: FlowKey, ticket: str) -> Ticket:
        """Return the state of a message; raises `NotFound`."""
        state = await self._queue.ticket(key, ticket)
        if state is None:
            detail = "There is no such message, or its result is no longer kept."
            raise NotFound(detail)
        return state

    async def results(
        self, key: FlowKey, after: ResultPosition | None, limit: int
    ) -> EndedMessages:
        """Return messages that ended after a position; raises `PositionGone`, `NotFound`."""
        return await self._queue.results(key, after, limit)

    async def dead_letters(
        self, key: FlowKey, after: int = 0, limit: int = 100
    ) -> list[DeadLetter]:
        return await self._queue.dead_letters(key, after, limit)

    async def replay(self, key: FlowKey, flow: Flow, *, expired: bool = False) -> Replayed:
        """Queue at most `MAX_MESSAGES` dead letters again.

        Args:
            key: The flow's.
            flow: The parsed flow.
            expired: Whether to include letters whose writes stores may have forgotten, so that
                completed writes are repeated.

        Raises:
            Conflict: All dead letters have expired.
        """
        # Always allowed for a flow without writes.
        includes_expired = expired or not flow.plan.outbound_part
        letters, skipped = await self._replayable(key, expired=includes_expired)
        if skipped and not letters:
            detail = (
                f"All {skipped} dead letters are older than {REPEATABLE_S // 3600} hours: what they"
                " have written already would be written again. Replay them with expired=true if"
                " that does no harm."
            )
            raise Conflict(detail, extra={"expired": skipped})
        messages = [
            _new_message(flow, letter.ticket, letter.document["message"], "") for letter in letters
        ]
        replayed = await self._queue.replay(key, messages) if messages else 0
        return Replayed(replayed, skipped)

    async def _replayable(self, key: FlowKey, *, expired: bool) -> tuple[list[DeadLetter], int]:
        """Return the first dead letters that can be replayed, and how many before them cannot."""
        letters: list[DeadLetter] = []
        skipped = after = 0
        while page := await self._queue.dead_letters(key, after, MAX_MESSAGES):
            after = page[-1].position
            fresh = [letter for letter in page if expired or letter.age_s < REPEATABLE_S]
            skipped += len(page) - len(fresh)
            letters += fresh
            if len(letters) >= MAX_MESSAGES:
                break
        return letters[:MAX_MESSAGES], skipped

    async def follow(self) -> None:
        """Execute the existing flows that the schemas of their databases allow."""
        keys = await self._queue.flows()
        databases = {route.id: route for route in self._plane.model.databases.values()}
        followed = self._allowed.keys()
        await self._stop([k for k in followed if k not in keys or k.database not in databases])
        for key in keys:
            if (database := databases.get(key.database)) is not None:
                await self._follow(key, database)

    async def _follow(self, key: FlowKey, database: DatabaseRoute) -> None:
        flow = await self._find(key, database)
        if isinstance(flow, RefusedFlow):
            self._allowed.follow(key, flow, database.schema)
            await self._end_workers([key])
        # A request may have started it meanwhile.
        elif flow is not None and key not in self._workers:
            self._start(key, flow, database)

    async def close(self) -> None:
        await self._stop(list(self._workers))
        await self._services.close()

    def _start(self, key: FlowKey, flow: Flow, database: DatabaseRoute) -> None:
        name = database.schema.database
        require = partial(self._require, key, name)
        invoker = PlanInvoker(self._plane, name, self._services, self._admit, require)
        # A token per worker: a stopped worker must not hold leases of the next one.
        token = f"{self._replica}:{uuid4().hex}"

        def count(counts: Mapping[str, int], wait_s: float | None) -> None:
            self._observe(FlowCounted(name, key.flow, counts, wait_s))

        worker = FlowWorker(key, flow, self._queue, invoker, token, self._clock, count)
        self._allowed.follow(key, flow, database.schema)
        self._workers[key] = asyncio.create_task(worker.run())

    def _require(self, key: FlowKey, name: str) -> None:
        """Require that the current schema allows a flow; raises `NotAllowed`."""
        database = self._plane.model.databases.get(name)
        if database is None or database.id != key.database:
            raise NotAllowed("Its database is gone.")
        self._allowed.require(key, database.schema)

    def _admit(self, plane: DataPlane, database: str) -> AbstractAsyncContextManager[DataPlane]:
        # `admitted` may be set after the first workers were started.
        return self.admitted(plane, database)

    async def _stop(self, keys: Sequence[FlowKey]) -> None:
        for key in keys:
            self._allowed.forget(key)
        await self._end_workers(keys)

    async def _end_workers(self, keys: Sequence[FlowKey]) -> None:
        await end([self._workers.pop(key) for key in keys if key in self._workers])


def flow_document(id_: str, flow: Flow | RefusedFlow) -> dict[str, Any]:
    """Return a flow for lists; if it is not executed, with the reason."""
    document = flow.document
    members = {
        "id": id_,
        "name": document.get("name", ""),
        "latency_s": float(document["latency_s"]),
        "ordered": document.get("ordered", False),
        "objective": document.get("objective", OBJECTIVES[0]),
    }
    return members | ({"detail": flow.detail} if isinstance(flow, RefusedFlow) else {})


def _plans(flow: Flow, level: int) -> dict[str, Any]:
    """Return the plans of a flow whose messages are queued by a level."""
    plan = flow.plan
    return {
        "partitioned_by": describe_grain(plan.levels[level]),
        "plan": flow.document["plan"],
        "rewritten_plan": describe(rewrite(plan, plan.levels[level])),
        "outbound_plan": describe(steps_of_message(plan.outbound_part)),
    }


def _new_message(flow: Flow, ticket: str, message: Any, pointer: str) -> NewMessage:
    body = check_message(flow.plan, message, pointer)
    values = "".join(_digest(canonical(message, level)) for level in flow.plan.levels)
    return NewMessage(ticket, values, body)


def _digest(value: bytes) -> str:
    """Return a value, which can be long, in `LEVEL_DIGITS` digits."""
    return blake2b(value, digest_size=LEVEL_DIGITS // 2).hexdigest()


def _with_shares(report: Mapping[str, Any]) -> dict[str, Any]:
    counts = report["counts"]
    ended = counts.get("done", 0) + counts.get("failed", 0)
    share = counts.get("late", 0) / ended if ended else None
    return {**report, "share_beyond_bound": share}
