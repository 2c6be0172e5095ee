"""How long a relay waits between two looks: hardly at all while there is something to bring."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

__all__ = ["Idle"]

LEAST_S: Final = 0.05
"""What a round costs does not depend on how much it brings, and writes pay for it."""

MOST_S: Final = 0.2


class Idle:
    """Waits that double while nothing comes, and that a nudge cuts short.

    A nudge does not shorten the least wait: changes that come one by one are brought many at once.
    """

    def __init__(self) -> None:
        self._nudged = asyncio.Event()
        self._wait_s = LEAST_S

    def nudge(self) -> None:
        """Say that there is something to bring."""
        self._nudged.set()

    async def wait(self, *, found: bool) -> None:
        """Wait before the next look.

        Args:
            found: Whether the last look found anything.
        """
        self._wait_s = LEAST_S if found else min(self._wait_s * 2, MOST_S)
        await asyncio.sleep(LEAST_S)
        if self._wait_s > LEAST_S:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._wait_s - LEAST_S):
                    await self._nudged.wait()
        self._nudged.clear()  # the next look finds whatever came
