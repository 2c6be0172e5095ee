"""Steps that callers ask for at the same time, sent together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from sketch.port import Part, SketchUnavailable
from sketch.redis_channel import Channel, ScriptCall

__all__ = ["Answer", "Steps"]

_STEPS_AT_ONCE: Final = 128
_KEYS_AT_ONCE: Final = 1_000


@dataclass(frozen=True, slots=True)
class Answer:
    """What a step was answered, and the server's time then."""

    now_us: int
    value: Any


@dataclass(slots=True)
class _Step:
    words: Sequence[Any]
    keys: int
    answer: asyncio.Future[Answer]


class Steps:
    """Gathers the steps of one turn of the event loop, and of the time a round trip takes.

    Args:
        channel: Sends them.
        keys_of: Names the keys of a part.
        expired_at_once: How many keys may expire in the course of a step at least.
    """

    def __init__(
        self, channel: Channel, keys_of: Callable[[Part], Sequence[bytes]], expired_at_once: int
    ) -> None:
        self._channel = channel
        self._keys_of = keys_of
        self._expired_at_once = expired_at_once
        self._waiting: dict[Part, list[_Step]] = {}
        self._sending: asyncio.Task[None] | None = None

    async def take(self, part: Part, name: str, words: Sequence[Any], keys: int = 1) -> Answer:
        """Take one step on a part.

        Args:
            part: The part.
            name: What to do.
            words: With what.
            keys: How many keys that concerns.

        Raises:
            SketchUnavailable: It may have been taken or not.
        """
        step = _Step((name, len(words), *words), keys, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(part, []).append(step)
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_all())
        return await step.answer

    async def close(self) -> None:
        """Refuse what is waiting."""
        if self._sending is not None:
            self._sending.cancel()
            with suppress(asyncio.CancelledError):
                await self._sending

    async def _send_all(self) -> None:
        sent: list[_Step] = []
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, {}
                sent = [step for steps in waiting.values() for step in steps]
                await self._send([(p, some) for p, all_ in waiting.items() for some in _cut(all_)])
        finally:
            self._sending = None
            left = [step for steps in self._waiting.values() for step in steps]
            self._waiting = {}
            for step in sent + left:
                _refuse(step, None)

    async def _send(self, rows: Sequence[tuple[Part, Sequence[_Step]]]) -> None:
        calls = [self._call(part, steps) for part, steps in rows]
        try:
            answers = await self._channel.ask(calls)
        except SketchUnavailable as error:
            answers = [error] * len(calls)
        for (_, steps), answer in zip(rows, answers, strict=True):
            _tell(steps, answer)

    def _call(self, part: Part, steps: Sequence[_Step]) -> ScriptCall:
        # Twice as many may go as come, so what has expired does not pile up.
        keys = sum(step.keys for step in steps)
        expiring = max(self._expired_at_once * len(steps), 2 * keys)
        words = [word for step in steps for word in step.words]
        return ScriptCall(self._keys_of(part), expiring, words)


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
