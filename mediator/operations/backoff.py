"""Back-off of requests that meet the intent of another write: bounded retries.

See docs/transactions.md, "Foreign intents".
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from mediator.base.errors import MediatorError
from mediator.operations.intents import ForeignIntents, IntentResolver
from mediator.stores.port import RecordKey, Status, Write, WriteResult

__all__ = ["MAX_PAUSE_S", "MAX_WAIT_S", "Backoff", "WriteReply", "retry_locked", "retryable"]

MAX_WAIT_S: Final = 1.0
"""How long a write retries while other writes have intents on its record."""

FIRST_PAUSE_S: Final = 0.002
MAX_PAUSE_S: Final = 0.1

GRACE_S: Final = 0.03
"""How long a live coordinator needs; only later do others resolve its write."""

WriteReply: TypeAlias = WriteResult | MediatorError
"""The result of a write, or the error if it could not be sent."""


class Backoff:
    """Exponential back-off with jitter, within a bound."""

    def __init__(self, bound_s: float) -> None:
        self._now = asyncio.get_running_loop().time
        self._began = self._now()
        self._bound_s = bound_s
        self._pause_s = FIRST_PAUSE_S

    @property
    def is_exhausted(self) -> bool:
        return self._now() - self._began > self._bound_s

    @property
    def has_waited(self) -> bool:
        return self._pause_s > FIRST_PAUSE_S

    async def wait_for(
        self, foreign_intents: ForeignIntents, intents: IntentResolver | None
    ) -> None:
        """Pause; after `GRACE_S` also resolve the writes met, which can raise `Unavailable`."""
        # Jitter, so that requests that wait for the same write do not retry together.
        await asyncio.sleep(self._pause_s * (0.5 + random.random()))  # noqa: S311 - no secret
        self._pause_s = min(2 * self._pause_s, MAX_PAUSE_S)
        if foreign_intents and intents is not None and self._now() - self._began > GRACE_S:
            await intents.resolve(foreign_intents)


async def retry_locked(
    calls: Sequence[Write],
    results: list[WriteReply],
    send: Callable[[Sequence[Write]], Awaitable[Sequence[WriteReply]]],
    intents: IntentResolver | None,
) -> None:
    """Resend writes that met an intent, until none does or the back-off is exhausted.

    Replaces their results in `results`.
    """
    backoff = Backoff(MAX_WAIT_S)
    locked = retryable(calls, results, _is_locked)
    while locked and not backoff.is_exhausted:
        locked_calls = [calls[i] for i in locked]
        await backoff.wait_for(
            _foreign_intents_of(locked_calls, [results[i] for i in locked]), intents
        )
        retried = await send(locked_calls)
        for i, result in zip(locked, retried, strict=True):
            results[i] = result
        locked = [i for i in locked if _is_locked(calls[i], results[i])]


def retryable(
    calls: Sequence[Write],
    results: Sequence[WriteReply],
    is_refused: Callable[[Write, WriteReply], bool],
) -> list[int]:
    """Return the indices of refused writes of records that no later call has reached.

    If resent, an earlier write would take effect after the later one.
    """
    indices: list[int] = []
    reached: set[tuple[object, str]] = set()
    for i in range(len(calls) - 1, -1, -1):
        record = (calls[i].fragment, calls[i].id)
        if not is_refused(calls[i], results[i]):
            reached.add(record)
        elif record not in reached:
            indices.append(i)
    return indices[::-1]


def _is_locked(call: Write, result: WriteReply) -> bool:
    """Whether the record has an intent, or values that the write claims are reserved under one."""
    if not isinstance(result, WriteResult) or call.intent:
        return False
    is_reserved = result.taken is not None and bool(result.taken.intent)
    return result.status is Status.LOCKED or is_reserved


def _foreign_intents_of(
    calls: Sequence[Write], results: Sequence[WriteReply]
) -> dict[str, list[RecordKey]]:
    foreign_intents: dict[str, list[RecordKey]] = {}
    for call, result in zip(calls, results, strict=True):
        if isinstance(result, WriteResult):
            taken = result.taken
            intent, id_ = (taken.intent, taken.holder) if taken else (result.intent, call.id)
            foreign_intents.setdefault(intent, []).append((call.fragment, id_))
    return foreign_intents
