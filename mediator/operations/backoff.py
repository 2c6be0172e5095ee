"""Writes that meet the intent of another one: they wait for a moment, and then say so."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from mediator.base.errors import MediatorError
from mediator.operations.intents import ForeignIntents, IntentResolver
from mediator.stores.port import RecordKey, Status, Write, WriteResult

__all__ = ["MAX_PAUSE_S", "MAX_WAIT_S", "Backoff", "WriteReply", "retry_locked"]

MAX_WAIT_S: Final = 1.0
"""How long a write waits for others to get done with its record."""

FIRST_PAUSE_S: Final = 0.002
MAX_PAUSE_S: Final = 0.1

GRACE_S: Final = 0.03
"""What a live coordinator is given to get done, before others resolve its write themselves."""

WriteReply: TypeAlias = WriteResult | MediatorError
"""What became of a write, or why it could not be sent."""


class Backoff:
    """Waits for others: ever longer pauses, within a bound.

    Args:
        bound_s: For how long.
    """

    def __init__(self, bound_s: float) -> None:
        self._now = asyncio.get_running_loop().time
        self._began = self._now()
        self._bound_s = bound_s
        self._pause_s = FIRST_PAUSE_S

    @property
    def is_exhausted(self) -> bool:
        """Whether the bound has passed."""
        return self._now() - self._began > self._bound_s

    @property
    def has_waited(self) -> bool:
        """Whether there was a pause already."""
        return self._pause_s > FIRST_PAUSE_S

    async def wait_for(self, met: ForeignIntents, intents: IntentResolver | None) -> None:
        """Wait a little, and resolve what was met if its coordinators have had their moment.

        Args:
            met: The intents that were met.
            intents: Resolves them; None: there are none over several systems.

        Raises:
            Unavailable: See `IntentResolver.resolve`.
        """
        # At random, to spread those who wait.
        await asyncio.sleep(self._pause_s * (0.5 + random.random()))  # noqa: S311 - no secret
        self._pause_s = min(2 * self._pause_s, MAX_PAUSE_S)
        if met and intents is not None and self._now() - self._began > GRACE_S:
            await intents.resolve(met)


async def retry_locked(
    calls: Sequence[Write],
    results: list[WriteReply],
    send: Callable[[Sequence[Write]], Awaitable[Sequence[WriteReply]]],
    intents: IntentResolver | None,
) -> None:
    """Send writes again that met an intent, until there is none any more or backoff ends.

    Args:
        calls: The writes.
        results: What became of them; replaced for those sent again.
        send: Sends writes.
        intents: Resolves the writes whose intents are met; None: there are none over several
            systems.
    """
    backoff = Backoff(MAX_WAIT_S)
    waiting = _waiting(calls, results)
    while waiting and not backoff.is_exhausted:
        left = [calls[i] for i in waiting]
        await backoff.wait_for(_met(left, [results[i] for i in waiting]), intents)
        again = await send(left)
        for i, result in zip(waiting, again, strict=True):
            results[i] = result
        waiting = [i for i in waiting if _met_intent(calls[i], results[i])]


def _waiting(calls: Sequence[Write], results: Sequence[WriteReply]) -> list[int]:
    """Find the writes that may be sent again: none of a record that a later one has got to."""
    found: list[int] = []
    reached: set[tuple[object, str]] = set()
    for i in range(len(calls) - 1, -1, -1):
        record = (calls[i].fragment, calls[i].id)
        if not _met_intent(calls[i], results[i]):
            reached.add(record)
        elif record not in reached:
            found.append(i)
    return found[::-1]


def _met_intent(call: Write, result: WriteReply) -> bool:
    return isinstance(result, WriteResult) and result.status is Status.LOCKED and not call.intent


def _met(calls: Sequence[Write], results: Sequence[WriteReply]) -> dict[str, list[RecordKey]]:
    met: dict[str, list[RecordKey]] = {}
    for call, result in zip(calls, results, strict=True):
        if isinstance(result, WriteResult):
            met.setdefault(result.intent, []).append((call.fragment, call.id))
    return met
