"""The worker of one flow in one replica: takes batches, executes them, and sends in order."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import orjson

from mediator.base.clock import Clock
from mediator.base.errors import Invalid, MediatorError, Unavailable
from mediator.base.lease import LeaseLost, while_held
from mediator.base.slices import Slices
from mediator.flows.execution import BatchExecution, ExecutionMetrics, Invoker, Message
from mediator.flows.levels import LevelChoice
from mediator.flows.measurement import Measurement
from mediator.flows.message_values import MessageValues
from mediator.flows.parser import Flow
from mediator.flows.queue import (
    LEASE_S,
    Batch,
    End,
    Ended,
    FlowKey,
    MessageQueue,
    NoBatch,
    QueuedMessage,
    Recorded,
)
from mediator.flows.rewriting import rewrite, steps_of_message

__all__ = ["MAX_ATTEMPTS", "CountObserver", "FlowWorker"]

MAX_ATTEMPTS: Final = 5
"""Executions of a batch, or of a message to send, before it becomes a dead letter."""

_MAX_PAUSE_S: Final = 0.2
"""Seconds after which a worker polls for messages: other workers may be gone."""

_RETRY_S: Final = 0.1
"""Seconds before the second execution; the pause doubles with each further one."""

_SEND_BATCH: Final = 100

_END_BATCH_BYTES: Final = 2**22
"""Bytes of results after which a call to the queue ends no more messages."""

_log = logging.getLogger(__name__)


CountObserver: TypeAlias = Callable[[Mapping[str, int], float | None], None]
"""Called with the counts of a flow, and the waiting time (s) if it was computed."""


def _ignore(counts: Mapping[str, int], wait_s: float | None) -> None:
    """Observe nothing."""


class FlowWorker:
    """Executes one flow until its task is cancelled, concurrently with other replicas."""

    def __init__(
        self,
        key: FlowKey,
        flow: Flow,
        queue: MessageQueue,
        invoker: Invoker,
        token: str,
        clock: Clock,
        observe: CountObserver = _ignore,
    ) -> None:
        self._key = key
        self._flow = flow
        self._queue = queue
        self._invoker = invoker
        self._token = token
        self._clock = clock
        self._observe = observe
        # Independent of the level: a batch also has messages queued by a former level.
        self._shared = rewrite(flow.plan)
        self._outbound = steps_of_message(flow.plan.outbound_part)
        self._measurement = Measurement(flow, clock)
        self._levels = LevelChoice(flow.plan)
        self._slices = Slices(clock)

    async def run(self) -> None:
        failing = False
        while True:
            try:
                await asyncio.sleep(await self.step())
                failing = False
            except (Unavailable, LeaseLost) as error:
                if not failing:
                    _log.warning("message flow %s: %s", self._key.flow, error)
                failing = True
                await asyncio.sleep(_MAX_PAUSE_S)
            except Exception:  # noqa: BLE001 - it is logged, and the flow continues
                # Messages of a flow without a worker would wait for ever.
                _log.exception("message flow %s failed", self._key.flow)
                await asyncio.sleep(LEASE_S)

    async def step(self) -> float:
        """Execute a batch if one is due, send the next messages; return the pause after it (s)."""
        started = self._clock.monotonic()
        batch = await self._queue.take(self._key, self._token, self._measurement.wait_s)
        if isinstance(batch, Batch):
            await self._execute(batch, started)
        if self._flow.ordered:
            await self._send()
        if isinstance(batch, NoBatch):
            return min(batch.due_in_s or _MAX_PAUSE_S, _MAX_PAUSE_S)
        return 0.0

    async def _execute(self, batch: Batch, started: float) -> None:
        self._measurement.add_batch(batch)
        await self._while_held(batch.number, self._execute_held(batch, started))

    async def _while_held(self, batch: int | None, work: Coroutine[Any, Any, None]) -> None:
        """Work while the lease of a batch, or that of sending, is held; raises `LeaseLost`."""

        async def renew() -> bool:
            return await self._queue.renew(self._key, batch, self._token)

        await while_held(renew, LEASE_S / 3, work)

    async def _execute_held(self, batch: Batch, started: float) -> None:
        is_repeated = batch.attempt > 1
        if batch.attempt > MAX_ATTEMPTS:
            failed = [_message(queued, _not_survived()) for queued in batch.messages]
            await self._end_all(batch, failed, ExecutionMetrics(), {})
            return
        messages, metrics = await self._execute_shared(batch.messages)
        counts = {"batches": 1, "messages": len(messages), "repeated_batches": int(is_repeated)}
        await self._end_all(batch, messages, metrics, counts)
        took_s = self._clock.monotonic() - started
        self._measurement.add_execution(took_s, metrics.linear_s, len(messages))
        self._levels.add_batch([message.original for message in messages], metrics.shared_s)
        waiting = self._measurement.waiting
        self._observe(counts, None if waiting is None else waiting.wait_s)
        await self._report(batch.level)

    async def _report(self, level: int) -> None:
        chosen = self._levels.choose(level)
        if chosen != level:
            await self._queue.set_level(self._key, chosen)
        report = {**self._measurement.document(), "levels": self._levels.document()}
        await self._queue.publish(self._key, report)

    async def _execute_shared(
        self, queued: Sequence[QueuedMessage]
    ) -> tuple[list[Message], ExecutionMetrics]:
        """Execute the shared part, retrying transient errors; the last one fails all messages."""
        for attempt in range(MAX_ATTEMPTS):
            await _pause(attempt)
            messages = await self._messages(queued)
            execution = self._execution()
            try:
                await execution.run(self._shared, messages)
            except MediatorError as error:
                failure = error  # a transient error: other errors belong to their messages
            else:
                return messages, execution.metrics
        return [_message(message, failure) for message in queued], execution.metrics

    async def _messages(self, queued: Sequence[QueuedMessage]) -> list[Message]:
        messages = []
        for message in queued:
            await self._slices.checkpoint()
            messages.append(_message(message))
        return messages

    def _execution(self, *, is_repeated: bool = False) -> BatchExecution:
        return BatchExecution(self._invoker, self._key.flow, self._clock, is_repeated=is_repeated)

    async def _end_all(
        self,
        batch: Batch,
        messages: Sequence[Message],
        metrics: ExecutionMetrics,
        counts: dict[str, int],
    ) -> None:
        """End the messages of a batch, some MiB at a time; add what they counted to `counts`."""
        ordered, repeated = self._flow.ordered, batch.attempt > 1
        ended: list[Ended] = []
        size = 0
        for message in messages:
            if size >= _END_BATCH_BYTES:
                await self._end(batch, ended, {})
                ended, size = [], 0
            # Responses for one message are not kept until all messages have been sent.
            sent = (
                message
                if ordered
                else await self._execute_outbound(message, metrics, repeated=repeated)
            )
            ended.append(self._end_of(sent, held=ordered))
            size += len(ended[-1].document)
        counts.update(metrics.counts)
        await self._end(batch, ended, counts)

    async def _end(self, batch: Batch, ended: Sequence[Ended], counts: dict[str, int]) -> None:
        ordered = self._flow.ordered
        recorded = await self._queue.end_batch(
            self._key, batch.number, self._token, ended, counts, ordered=ordered
        )
        if recorded is None:
            raise LeaseLost
        if not ordered:
            self._observe(_count_ends(ended, recorded), None)

    async def _send(self) -> None:
        """End the next messages in order, executing the plan's writes for each."""
        while held := await self._queue.next_held(self._key, self._token, _SEND_BATCH):
            # One message can take longer than the lease, which a release renews.
            await self._while_held(None, self._send_held(held))

    async def _send_held(self, held: Sequence[Ended]) -> None:
        started = self._clock.monotonic()
        for message in held:
            metrics = ExecutionMetrics()
            ended = await self._execute_held_outbound(message, metrics)
            counts = metrics.counts
            recorded = await self._queue.release(self._key, self._token, ended, counts)
            if recorded is None:
                raise LeaseLost
            self._observe({**counts, **_count_ends([ended], recorded)}, None)
        self._measurement.add_outbound(self._clock.monotonic() - started, len(held))

    async def _execute_held_outbound(self, held: Ended, metrics: ExecutionMetrics) -> Ended:
        if held.end is End.FAILED:
            return held
        document = orjson.loads(held.document)
        queued = held.message._replace(body=orjson.dumps(document["message"]))
        failure = _not_survived() if held.attempt > MAX_ATTEMPTS else None
        message = _with_values(queued, document["message"], document["values"], failure)
        sent = await self._execute_outbound(message, metrics, repeated=held.is_repeated)
        return self._end_of(sent, held=False)

    async def _execute_outbound(
        self, message: Message, metrics: ExecutionMetrics, *, repeated: bool
    ) -> Message:
        """Execute the plan's writes for one message, retrying transient errors."""
        if message.error is not None:
            return message
        execution = self._execution(is_repeated=repeated)
        started = self._clock.monotonic()
        for attempt in range(MAX_ATTEMPTS):
            await _pause(attempt)
            state = replace(message, values=message.values.copy())
            try:
                await execution.run(self._outbound, [state])
            except MediatorError as error:
                state.error = error
            except LeaseLost:  # or the schema refuses the flow: nothing ends, and all messages wait
                raise
            except Exception:  # noqa: BLE001 - it is logged, and other messages continue
                state.error = self._unexpected()
                break
            else:
                break
        metrics.add(execution.metrics, self._clock.monotonic() - started)
        return state

    def _unexpected(self) -> MediatorError:
        """Return the error of a message for the exception being handled."""
        # If the exception ended the worker, an ordered flow would send the same message for ever.
        _log.exception("a message of message flow %s failed", self._key.flow)
        return MediatorError("An unexpected error has ended its execution; the log has it.")

    def _end_of(self, message: Message, *, held: bool) -> Ended:
        if message.error is None:
            try:
                return Ended(message.queued, End.DONE, _encode_result(message, held=held))
            except Exception:  # noqa: BLE001 - it is logged, and other messages continue
                message.error = self._unexpected()
        return Ended(message.queued, End.FAILED, _encode_dead_letter(message, message.error))


def _count_ends(ended: Iterable[Ended], recorded: Recorded) -> dict[str, int]:
    """Count ended messages by outcome, and the late ones among them."""
    counts = Counter(message.end.value for message in ended)
    return {**counts, "late": recorded.late}


async def _pause(attempt: int) -> None:
    """Wait before every execution but the first: each time twice as long."""
    if attempt:
        await asyncio.sleep(_RETRY_S * 2 ** (attempt - 1))


def _not_survived() -> MediatorError:
    return Unavailable(f"{MAX_ATTEMPTS} workers did not survive it.", system="flows")


def _message(queued: QueuedMessage, error: MediatorError | None = None) -> Message:
    original = orjson.loads(queued.body)
    return _with_values(queued, original, original, error)


def _with_values(
    queued: QueuedMessage,
    original: Mapping[str, Any],
    values: Mapping[str, Any],
    error: MediatorError | None,
) -> Message:
    """Return a message for execution; values beyond the bounds make it fail."""
    try:
        return Message(queued, original, MessageValues.of(values), error)
    except Invalid as failure:
        return Message(queued, original, MessageValues(), error or failure)


def _encode_result(message: Message, *, held: bool) -> bytes:
    values = dict(message.values)
    if not held:
        return orjson.dumps(values)
    return orjson.dumps({"message": orjson.Fragment(message.queued.body), "values": values})


def _encode_dead_letter(message: Message, error: MediatorError) -> bytes:
    locations = [{"pointer": at.pointer, "detail": at.detail} for at in error.locations]
    # The message as it arrived: encoding it cannot fail.
    original = orjson.Fragment(message.queued.body)
    return orjson.dumps({"message": original, "detail": error.detail, "errors": locations})
