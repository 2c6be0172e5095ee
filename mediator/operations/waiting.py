"""Writes to records that a transaction has marked: they wait for a moment, and then say so."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from mediator.errors import MediatorError
from mediator.operations.marks import Marks
from mediator.stores.port import Status, Write, WriteResult

__all__ = ["FIRST_PAUSE_S", "LONGEST_PAUSE_S", "PATIENCE_S", "Told", "wait_out"]

PATIENCE_S: Final = 1.0
"""How long a write waits for a transaction to get done with its record."""

FIRST_PAUSE_S: Final = 0.004
LONGEST_PAUSE_S: Final = 0.1

Told: TypeAlias = WriteResult | MediatorError
"""What became of a write, or why it could not be sent."""


async def wait_out(
    calls: Sequence[Write],
    results: list[Told],
    send: Callable[[Sequence[Write]], Awaitable[Sequence[Told]]],
    marks: Marks | None,
) -> None:
    """Send writes again that met a mark, until there is none any more or patience ends.

    Args:
        calls: The writes.
        results: What became of them; replaced for those sent again.
        send: Sends writes.
        marks: Looks after marks that nobody will take away; None: there are no transactions.
    """
    loop = asyncio.get_running_loop()
    patience, pause = loop.time() + PATIENCE_S, FIRST_PAUSE_S
    waiting = _waiting(calls, results)
    while waiting and loop.time() < patience:
        if marks is not None:
            await _look_after(marks, [calls[i] for i in waiting], [results[i] for i in waiting])
        again = await send([calls[i] for i in waiting])
        for i, result in zip(waiting, again, strict=True):
            results[i] = result
        waiting = [i for i in waiting if _met_mark(calls[i], results[i])]
        if waiting:
            await asyncio.sleep(pause * (0.5 + random.random()))  # noqa: S311 - spreads those who wait
            pause = min(2 * pause, LONGEST_PAUSE_S)


def _waiting(calls: Sequence[Write], results: Sequence[Told]) -> list[int]:
    """Find the writes that may be sent again: none of a record that a later one has got to."""
    found: list[int] = []
    reached: set[tuple[object, str]] = set()
    for i in range(len(calls) - 1, -1, -1):
        record = (calls[i].fragment, calls[i].id)
        if not _met_mark(calls[i], results[i]):
            reached.add(record)
        elif record not in reached:
            found.append(i)
    return found[::-1]


def _met_mark(call: Write, result: Told) -> bool:
    return isinstance(result, WriteResult) and result.status is Status.LOCKED and not call.mark


async def _look_after(marks: Marks, calls: Sequence[Write], results: Sequence[Told]) -> None:
    for call, result in zip(calls, results, strict=True):
        if isinstance(result, WriteResult):
            await marks.look_after(call.fragment, call.id, result.mark)
