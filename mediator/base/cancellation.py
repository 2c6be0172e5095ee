"""Cancelling tasks until they have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Final

__all__ = ["end", "ended_within"]

RETRY_S: Final = 1.0


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks until they have ended: a driver may lose a cancellation in its own timeouts."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        ended, left = await asyncio.wait(left, timeout=RETRY_S)
        for task in ended:
            if not task.cancelled():
                task.exception()  # nobody else asks for it any more


async def ended_within(seconds: float, ending: Coroutine[Any, Any, None]) -> bool:
    """Await a shutdown for so many seconds at most; returns whether it is done.

    A late one is cancelled and left behind, as it may lose the cancellation.
    """
    task = asyncio.create_task(ending)
    _, late = await asyncio.wait({task}, timeout=seconds)
    if late:
        task.cancel()
        return False
    task.result()
    return True
