"""The worker of one flow in one replica: takes batches, executes them, sends in order."""

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
from mediator.flows.execution import BatchExecution, Invoker, Measured, Message
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

__all__ = ["MOST_ATTEMPTS", "CountObserver", "FlowWorker"]

MOST_ATTEMPTS: Final = 5
"""How often a batch, or a message that is to be sent, is executed until it is a dead letter."""

_LONGEST_PAUSE_S: Final = 0.2
"""Seconds after which a worker looks for messages again: others may be gone."""

_RETRY_S: Final = 0.1
"""Pause in seconds before the second execution; each further one is twice as long."""

_SENT_AT_ONCE: Final = 100

_ENDED_BYTES: Final = 2**22
"""Of results, beyond which no more messages are ended by the same call to the queue."""

_log = logging.getLogger(__name__)


CountObserver: TypeAlias = Callable[[Mapping[str, int], float | None], None]
"""Called with what a flow counts, and with the waiting time (s) that was computed, if it was."""


def _ignore(counts: Mapping[str, int], wait_s: float | None) -> None:
    """Observe nothing."""


class FlowWorker:
    """Executes one flow, until its task is cancelled; any number of replicas may do so at once."""

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
        # Whatever a batch agrees on: messages that were queued by a former level are in it, too.
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
                await asyncio.sleep(_LONGEST_PAUSE_S)
            except Exception:  # noqa: BLE001 - it is logged, and the flow goes on
                # A flow whose worker has ended would keep its messages for ever.
                _log.exception("message flow %s failed", self._key.flow)
                await asyncio.sleep(LEASE_S)

    async def step(self) -> float:
        """Execute a batch if one is due, send what is next; return the pause afterwards (s)."""
        started = self._clock.monotonic()
        taken = await self._queue.take(self._key, self._token, self._measurement.wait_s)
        if isinstance(taken, Batch):
            await self._execute(taken, started)
        if self._flow.ordered:
            await self._send()
        if isinstance(taken, NoBatch):
            return min(taken.due_in_s or _LONGEST_PAUSE_S, _LONGEST_PAUSE_S)
        return 0.0

    async def _execute(self, batch: Batch, started: float) -> None:
        self._measurement.taken(batch)
        await self._while_held(batch.number, self._execute_held(batch, started))

    async def _while_held(self, batch: int | None, work: Coroutine[Any, Any, None]) -> None:
        """Work while the lease of a batch, or that of sending, is held; raises `LeaseLost`."""

        async def renew() -> bool:
            return await self._queue.renew(self._key, batch, self._token)

        await while_held(renew, LEASE_S / 3, work)

    async def _execute_held(self, batch: Batch, started: float) -> None:
        repeated = batch.attempt > 1
        if batch.attempt > MOST_ATTEMPTS:
            failed = [_message(each, _not_survived()) for each in batch.messages]
            await self._end_all(batch, failed, Measured(), {})
            return
        messages, measured = await self._attempts(batch.messages)
        counts = {"batches": 1, "messages": len(messages), "repeated_batches": int(repeated)}
        await self._end_all(batch, messages, measured, counts)
        took_s = self._clock.monotonic() - started
        self._measurement.executed(took_s, measured.linear_s, len(messages))
        self._levels.executed([message.original for message in messages], measured.shared_s)
        waiting = self._measurement.waiting
        self._observe(counts, None if waiting is None else waiting.wait_s)
        await self._report(batch.level)

    async def _report(self, level: int) -> None:
        chosen = self._levels.choose(level)
        if chosen != level:
            await self._queue.set_level(self._key, chosen)
        report = {**self._measurement.document(), "levels": self._levels.document()}
        await self._queue.publish(self._key, report)

    async def _attempts(self, queued: Sequence[QueuedMessage]) -> tuple[list[Message], Measured]:
        """Execute the shared part until no error is transient; then it is that of all messages."""
        for attempt in range(MOST_ATTEMPTS):
            await _pause(attempt)
            messages = await self._messages(queued)
            execution = self._execution()
            try:
                await execution.run(self._shared, messages)
            except MediatorError as error:
                failure = error  # a transient one: others belong to their messages
            else:
                return messages, execution.measured
        return [_message(each, failure) for each in queued], execution.measured

    async def _messages(self, queued: Sequence[QueuedMessage]) -> list[Message]:
        messages = []
        for each in queued:
            await self._slices.checkpoint()
            messages.append(_message(each))
        return messages

    def _execution(self, *, is_repeated: bool = False) -> BatchExecution:
        return BatchExecution(self._invoker, self._key.flow, self._clock, is_repeated=is_repeated)

    async def _end_all(
        self,
        batch: Batch,
        messages: Sequence[Message],
        measured: Measured,
        counts: dict[str, int],
    ) -> None:
        """End the messages of a batch, some MiB at a time; `counts` gets what they have counted."""
        ordered, repeated = self._flow.ordered, batch.attempt > 1
        ended: list[Ended] = []
        size = 0
        for message in messages:
            if size >= _ENDED_BYTES:
                await self._end(batch, ended, {})
                ended, size = [], 0
            # What one message is answered is not kept until all have been.
            sent = message if ordered else await self._sent(message, measured, repeated=repeated)
            ended.append(self._ended(sent, held=ordered))
            size += len(ended[-1].document)
        counts.update(measured.counts)
        await self._end(batch, ended, counts)

    async def _end(self, batch: Batch, ended: Sequence[Ended], counts: dict[str, int]) -> None:
        ordered = self._flow.ordered
        recorded = await self._queue.end_batch(
            self._key, batch.number, self._token, ended, counts, ordered=ordered
        )
        if recorded is None:
            raise LeaseLost
        if not ordered:
            self._observe(_ends(ended, recorded), None)

    async def _send(self) -> None:
        """End the messages that are next in order, executing what the plan writes for each."""
        while held := await self._queue.next_held(self._key, self._token, _SENT_AT_ONCE):
            # One message may take longer than the lease, which a release prolongs.
            await self._while_held(None, self._send_held(held))

    async def _send_held(self, held: Sequence[Ended]) -> None:
        started = self._clock.monotonic()
        for each in held:
            measured = Measured()
            ended = await self._sent_held(each, measured)
            counts = measured.counts
            recorded = await self._queue.release(self._key, self._token, ended, counts)
            if recorded is None:
                raise LeaseLost
            self._observe({**counts, **_ends([ended], recorded)}, None)
        self._measurement.sent(self._clock.monotonic() - started, len(held))

    async def _sent_held(self, held: Ended, measured: Measured) -> Ended:
        if held.end is End.FAILED:
            return held
        document = orjson.loads(held.document)
        queued = held.message._replace(body=orjson.dumps(document["message"]))
        failure = _not_survived() if held.attempt > MOST_ATTEMPTS else None
        message = _with_values(queued, document["message"], document["values"], failure)
        sent = await self._sent(message, measured, repeated=held.is_repeated)
        return self._ended(sent, held=False)

    async def _sent(self, message: Message, measured: Measured, *, repeated: bool) -> Message:
        """Execute what the plan writes for one message, again while its error is transient."""
        if message.error is not None:
            return message
        execution = self._execution(is_repeated=repeated)
        started = self._clock.monotonic()
        for attempt in range(MOST_ATTEMPTS):
            await _pause(attempt)
            state = replace(message, values=message.values.copy())
            try:
                await execution.run(self._outbound, [state])
            except MediatorError as error:
                state.error = error
            except LeaseLost:  # or the schema refuses the flow: nothing ends, and all of it waits
                raise
            except Exception:  # noqa: BLE001 - it is logged, and other messages go on
                state.error = self._unexpected()
                break
            else:
                break
        measured.add(execution.measured, self._clock.monotonic() - started)
        return state

    def _unexpected(self) -> MediatorError:
        """Return the error of a message for an exception that is being handled."""
        # If it ended the worker, an ordered flow would send the same message for ever.
        _log.exception("a message of message flow %s failed", self._key.flow)
        return MediatorError("An unexpected error has ended its execution; the log has it.")

    def _ended(self, message: Message, *, held: bool) -> Ended:
        if message.error is None:
            try:
                return Ended(message.queued, End.DONE, _done(message, held=held))
            except Exception:  # noqa: BLE001 - it is logged, and other messages go on
                message.error = self._unexpected()
        return Ended(message.queued, End.FAILED, _letter(message, message.error))


def _ends(ended: Iterable[Ended], recorded: Recorded) -> dict[str, int]:
    """Count messages that have ended, by their outcomes, and those of them that were late."""
    counts = Counter(each.end.value for each in ended)
    return {**counts, "late": recorded.late}


async def _pause(attempt: int) -> None:
    """Wait before an execution that is not the first: each time twice as long."""
    if attempt:
        await asyncio.sleep(_RETRY_S * 2 ** (attempt - 1))


def _not_survived() -> MediatorError:
    return Unavailable(f"{MOST_ATTEMPTS} workers did not survive it.", system="flows")


def _message(queued: QueuedMessage, error: MediatorError | None = None) -> Message:
    original = orjson.loads(queued.body)
    return _with_values(queued, original, original, error)


def _with_values(
    queued: QueuedMessage,
    original: Mapping[str, Any],
    values: Mapping[str, Any],
    error: MediatorError | None,
) -> Message:
    """Return a message under way; one whose values are beyond the bounds has failed."""
    try:
        return Message(queued, original, MessageValues.of(values), error)
    except Invalid as failure:
        return Message(queued, original, MessageValues(), error or failure)


def _done(message: Message, *, held: bool) -> bytes:
    values = dict(message.values)
    if not held:
        return orjson.dumps(values)
    return orjson.dumps({"message": orjson.Fragment(message.queued.body), "values": values})


def _letter(message: Message, error: MediatorError) -> bytes:
    locations = [{"pointer": at.pointer, "detail": at.detail} for at in error.locations]
    # The message as it arrived: nothing about it can be what has failed.
    original = orjson.Fragment(message.queued.body)
    return orjson.dumps({"message": original, "detail": error.detail, "errors": locations})
