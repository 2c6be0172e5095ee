"""Steps that callers ask for at the same time, sent together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from sketch.protocol.port import Partition, SketchUnavailable
from sketch.redis.script_client import Channel, ScriptCall, settled

__all__ = ["Answer", "Steps"]

_STEPS_AT_ONCE: Final = 128
_KEYS_AT_ONCE: Final = 1_000


class Answer(NamedTuple):
    """What a step was answered, and the server's time then."""

    now_us: int
    value: Any


@dataclass(slots=True)
class _Step:
    words: Sequence[Any]
    keys: int
    answer: asyncio.Future[Answer]


_Rows: TypeAlias = Sequence[tuple[Partition, Sequence[_Step]]]
_Calls: TypeAlias = Sequence[ScriptCall]


class Steps:
    """Gathers the steps of one turn of the event loop, and of the time a round trip takes.

    Args:
        channel: Sends them.
        keys_of: Names the keys of a partition, as `words`.
        expired_at_once: How many keys may expire in the course of a step at least.
    """

    def __init__(
        self, channel: Channel, keys_of: Callable[[Partition], bytes], expired_at_once: int
    ) -> None:
        self._channel = channel
        self._keys_of = keys_of
        self._expired_at_once = expired_at_once
        self._waiting: dict[Partition, list[_Step]] = {}
        self._under_way: _Rows = ()
        self._asking: asyncio.Task[None] | None = None
        self._alone = True
        self._due = False
        self._closed = False

    async def take(
        self, partition: Partition, name: str, words: Sequence[Any], keys: int = 1
    ) -> Answer:
        """Take one step on a partition.

        Args:
            partition: The partition.
            name: What to do.
            words: With what.
            keys: How many keys that concerns.

        Raises:
            SketchUnavailable: It may have been taken or not.
        """
        step = _Step((name, len(words), *words), keys, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(partition, []).append(step)
        if not self._under_way:
            self._begin()
        return await step.answer

    def _begin(self) -> None:
        """Send at once for a lone caller; where there are many, all of one turn of the loop."""
        if self._alone:
            self._send()
        elif not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._send)

    async def close(self) -> None:
        """Refuse what is waiting, and what comes."""
        self._closed = True
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        self._refuse_all()

    def _send(self) -> None:
        """Send what is waiting: what comes while it is under way goes together, after it."""
        waiting, self._waiting = self._waiting, {}
        rows = [(partition, some) for partition, all_ in waiting.items() for some in _cut(all_)]
        self._under_way = rows
        self._alone, self._due = len(rows) == 1 and len(rows[0][1]) == 1, False
        calls = [self._call(partition, steps) for partition, steps in rows]
        if self._closed or not self._channel.post(calls, partial(self._answered, rows, calls)):
            self._ask(rows, calls)

    def _answered(self, rows: _Rows, calls: _Calls, came: list[Any] | Exception) -> None:
        if isinstance(came, list) and settled(came):
            self._tell(rows, came)
        elif isinstance(came, TimeoutError):
            self._tell(rows, [came] * len(rows))
        else:
            self._ask(rows, calls)

    def _ask(self, rows: _Rows, calls: _Calls) -> None:
        """Connect, or settle with the server what is not; every step may be taken twice."""
        if self._closed:
            self._refuse_all()
        else:
            self._asking = asyncio.create_task(self._asked(rows, calls))

    async def _asked(self, rows: _Rows, calls: _Calls) -> None:
        try:
            answers = await self._channel.ask(calls)
        except SketchUnavailable as error:
            answers = [error] * len(calls)
        self._tell(rows, answers)

    def _tell(self, rows: _Rows, answers: Sequence[Any]) -> None:
        for (_, steps), answer in zip(rows, answers, strict=True):
            _tell(steps, answer)
        self._under_way = ()
        if self._waiting:
            self._send()

    def _refuse_all(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for _, steps in (*self._under_way, *waiting.items()):
            for step in steps:
                _refuse(step, None)
        self._under_way = ()

    def _call(self, partition: Partition, steps: Sequence[_Step]) -> ScriptCall:
        # Twice as many may go as come, so what has expired does not pile up.
        keys = sum([step.keys for step in steps])
        expiring = max(self._expired_at_once * len(steps), 2 * keys)
        words = [word for step in steps for word in step.words]
        return ScriptCall(self._keys_of(partition), expiring, words)


def _cut(steps: Sequence[_Step]) -> Iterator[list[_Step]]:
    """Cut steps so that no call of the script keeps the server for long."""
    some: list[_Step] = []
    keys = 0
    for step in steps:
        if some and (len(some) >= _STEPS_AT_ONCE or keys + step.keys > _KEYS_AT_ONCE):
            yield some
            some, keys = [], 0
        some.append(step)
        keys += step.keys
    yield some


def _tell(steps: Sequence[_Step], answer: Any) -> None:
    if isinstance(answer, Exception):
        for step in steps:
            _refuse(step, answer)
        return
    now_us = answer[0]
    for step, value in zip(steps, answer[1:], strict=True):
        if not step.answer.done():
            step.answer.set_result(Answer(now_us, value))


def _refuse(step: _Step, cause: Exception | None) -> None:
    if step.answer.done():
        return
    error = cause if isinstance(cause, SketchUnavailable) else None
    refusal = SketchUnavailable(*(error.args if error else ("The sketch refused.",)))
    refusal.__cause__ = cause
    step.answer.set_exception(refusal)
