"""Waiting for a condition."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

__all__ = ["eventually"]

WITHIN_S = 120.0
PAUSE_S = 0.05


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Poll until a condition holds.

    Raises:
        TimeoutError: It did not hold within `WITHIN_S`.
    """
    async with asyncio.timeout(WITHIN_S):
        while True:
            if await condition():
                return
            await asyncio.sleep(PAUSE_S)
