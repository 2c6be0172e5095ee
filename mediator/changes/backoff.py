"""The wait of a relay between two reads: short while there are changes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

__all__ = ["IdleBackoff"]

MIN_WAIT_S: Final = 0.05
"""A relay of many changes costs as much as one of few, so changes are gathered for this long."""

MAX_WAIT_S: Final = 0.2


class IdleBackoff:
    """Waits that double while there are no changes, and that a wake-up cuts short.

    It does not cut the shortest wait, so that changes which come one by one are relayed together.
    """

    def __init__(self) -> None:
        self._woken = asyncio.Event()
        self._wait_s = MIN_WAIT_S

    def wake(self) -> None:
        """End the wait, as there are changes."""
        self._woken.set()

    async def wait(self, *, found: bool) -> None:
        """Wait before the next read.

        Args:
            found: Whether the last one found anything.
        """
        self._wait_s = MIN_WAIT_S if found else min(self._wait_s * 2, MAX_WAIT_S)
        await asyncio.sleep(MIN_WAIT_S)
        if self._wait_s > MIN_WAIT_S:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._wait_s - MIN_WAIT_S):
                    await self._woken.wait()
        self._woken.clear()  # the next read sees all of them
