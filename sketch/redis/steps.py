"""Coalesces steps that are requested at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from redis_connection.connection import ConnectionLost
from sketch.protocol.port import Partition, SketchUnavailable
from sketch.redis.script_client import ScriptCall, ScriptClient, accepted

__all__ = ["StepCoalescer", "StepResult"]

_STEPS_PER_CALL: Final = 128
_KEYS_PER_CALL: Final = 1_000


class StepResult(NamedTuple):
    now_us: int
    value: Any


@dataclass(slots=True)
class _Step:
    arguments: Sequence[Any]
    keys: int
    future: asyncio.Future[StepResult]


_Rows: TypeAlias = Sequence[tuple[Partition, Sequence[_Step]]]
_Calls: TypeAlias = Sequence[ScriptCall]


class StepCoalescer:
    """Coalesces the steps of one tick of the event loop, and of the time a round trip takes."""

    def __init__(
        self, client: ScriptClient, keys_of: Callable[[Partition], bytes], expired_at_once: int
    ) -> None:
        self._client = client
        self._keys_of = keys_of
        self._expired_at_once = expired_at_once
        self._waiting: dict[Partition, list[_Step]] = {}
        self._in_flight: _Rows = ()
        self._executing: asyncio.Task[None] | None = None
        self._is_lone = True
        self._scheduled = False
        self._closed = False

    async def take(
        self, partition: Partition, name: str, arguments: Sequence[Any], keys: int = 1
    ) -> StepResult:
        """Take one step on a partition, which concerns `keys` keys.

        Raises:
            SketchUnavailable: It may have been executed or not.
        """
        step = _Step(
            (name, len(arguments), *arguments), keys, asyncio.get_running_loop().create_future()
        )
        self._waiting.setdefault(partition, []).append(step)
        if not self._in_flight:
            self._schedule()
        return await step.future

    def _schedule(self) -> None:
        """Send at once for a lone caller; where there are many, all steps of one loop tick."""
        if self._is_lone:
            self._send()
        elif not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._send)

    async def close(self) -> None:
        """Refuse all steps, waiting and later ones."""
        self._closed = True
        if self._executing is not None:
            self._executing.cancel()
            await asyncio.gather(self._executing, return_exceptions=True)
        self._refuse_all()

    def _send(self) -> None:
        """Send the waiting steps; steps that arrive meanwhile go together afterwards."""
        waiting, self._waiting = self._waiting, {}
        rows = [
            (partition, chunk) for partition, steps in waiting.items() for chunk in _split(steps)
        ]
        self._in_flight = rows
        self._is_lone, self._scheduled = len(rows) == 1 and len(rows[0][1]) == 1, False
        calls = [self._call(partition, steps) for partition, steps in rows]
        if self._closed or not self._client.post(calls, partial(self._on_replies, rows, calls)):
            self._start_executing(rows, calls)

    def _on_replies(self, rows: _Rows, calls: _Calls, replies: list[Any] | ConnectionLost) -> None:
        if isinstance(replies, list) and accepted(replies):
            self._resolve(rows, replies)
        elif isinstance(replies, TimeoutError):
            self._resolve(rows, [replies] * len(rows))
        else:
            self._start_executing(rows, calls)

    def _start_executing(self, rows: _Rows, calls: _Calls) -> None:
        """Connect, or repeat refused steps; every step may be executed twice."""
        if self._closed:
            self._refuse_all()
        else:
            self._executing = asyncio.create_task(self._execute(rows, calls))

    async def _execute(self, rows: _Rows, calls: _Calls) -> None:
        try:
            replies = await self._client.execute(calls)
        except SketchUnavailable as error:
            replies = [error] * len(calls)
        self._resolve(rows, replies)

    def _resolve(self, rows: _Rows, replies: Sequence[Any]) -> None:
        for (_, steps), reply in zip(rows, replies, strict=True):
            _resolve(steps, reply)
        self._in_flight = ()
        if self._waiting:
            self._send()

    def _refuse_all(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for _, steps in (*self._in_flight, *waiting.items()):
            for step in steps:
                _refuse(step, None)
        self._in_flight = ()

    def _call(self, partition: Partition, steps: Sequence[_Step]) -> ScriptCall:
        # Twice as many may go as come, so that expired keys do not pile up.
        keys = sum([step.keys for step in steps])
        expiring = max(self._expired_at_once * len(steps), 2 * keys)
        arguments = [argument for step in steps for argument in step.arguments]
        return ScriptCall(self._keys_of(partition), expiring, arguments)


def _split(steps: Sequence[_Step]) -> Iterator[list[_Step]]:
    """Split steps so that no call of the script blocks the server for long."""
    chunk: list[_Step] = []
    keys = 0
    for step in steps:
        if chunk and (len(chunk) >= _STEPS_PER_CALL or keys + step.keys > _KEYS_PER_CALL):
            yield chunk
            chunk, keys = [], 0
        chunk.append(step)
        keys += step.keys
    yield chunk


def _resolve(steps: Sequence[_Step], reply: Any) -> None:
    if isinstance(reply, Exception):
        for step in steps:
            _refuse(step, reply)
        return
    now_us = reply[0]
    for step, value in zip(steps, reply[1:], strict=True):
        # A cancelled caller no longer waits.
        if not step.future.done():
            step.future.set_result(StepResult(now_us, value))


def _refuse(step: _Step, cause: Exception | None) -> None:
    if step.future.done():
        return
    error = cause if isinstance(cause, SketchUnavailable) else None
    # An exception for each caller: raising a shared one would mix their tracebacks.
    refusal = SketchUnavailable(*(error.args if error else ("The sketch refused.",)))
    refusal.__cause__ = cause
    step.future.set_exception(refusal)
