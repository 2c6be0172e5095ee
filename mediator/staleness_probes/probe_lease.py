"""The lease of a probe: one at a time among all replicas, as two would measure each other.

========================================= ======================================================
what happens                              what becomes of it
========================================= ======================================================
two replicas begin at once                one gets the lease, the other is refused
the holder dies                           its lease ends within `LEASE_S`; then another may begin
the holder stands still for longer        another may have begun: it sees so when it renews, and
                                          ends; the two overlap by `RENEW_S` at most
the coordination Redis does not answer    nobody begins; who holds goes on for `LEASE_S` and ends
========================================= ======================================================

Nothing can be damaged by two that overlap, so the lease is compared by nobody else.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final
from uuid import uuid4

from mediator.base.clock import Clock
from mediator.base.errors import Unavailable
from mediator.changes.log_relays import Leasing

__all__ = ["LEASE_S", "RENEW_S", "ProbeLease"]

LEASE_S: Final = 6.0
RENEW_S: Final = 1.5
_NAME: Final = "probe"


class ProbeLease:
    """A probe's lease, from when it is acquired until it is released.

    Args:
        leases: Leases that replicas share; None: there are none, and every process has its own.
        clock: Its monotonic time is used.
    """

    def __init__(self, leases: Leasing | None, clock: Clock) -> None:
        self._leases = leases
        self._clock = clock
        self._token = uuid4().hex

    async def acquire(self) -> bool:
        """Acquire it; False while another replica holds it. Raises `Unavailable`."""
        return self._leases is None or await self._leases.acquire(_NAME, self._token, LEASE_S)

    async def lost(self) -> None:
        """Renew it, and return once it is lost."""
        acquired_at = self._clock.monotonic()
        while self._clock.monotonic() < acquired_at + LEASE_S:
            await asyncio.sleep(RENEW_S)
            with suppress(Unavailable):
                requested_at = self._clock.monotonic()
                if not await self.acquire():
                    return
                acquired_at = requested_at

    async def release(self) -> None:
        """Release it."""
        if self._leases is not None:
            with suppress(Unavailable):  # it expires
                await self._leases.release(_NAME, self._token)
