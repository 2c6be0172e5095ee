"""Ending tasks for certain."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Final

__all__ = ["end", "ended_within"]

AGAIN_S: Final = 1.0


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks until they have ended: a driver may lose a cancellation in its own timeouts."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        ended, left = await asyncio.wait(left, timeout=AGAIN_S)
        for task in ended:
            if not task.cancelled():
                task.exception()  # nobody else asks for it any more


async def ended_within(seconds: float, ending: Coroutine[Any, Any, None]) -> bool:
    """Carry out what ends something, for so many seconds at most; returns whether it is done.

    What is late is left behind, as it may have lost its cancellation.
    """
    task = asyncio.create_task(ending)
    _, late = await asyncio.wait({task}, timeout=seconds)
    if late:
        task.cancel()
        return False
    task.result()
    return True
