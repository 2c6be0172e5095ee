"""Whose turn it is to probe: one at a time among all replicas, as two would measure each other.

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

__all__ = ["LEASE_S", "RENEW_S", "Turn"]

LEASE_S: Final = 6.0
RENEW_S: Final = 1.5
_NAME: Final = "probe"


class Turn:
    """A probe's turn, from when it is taken until it is given back.

    Args:
        leases: Leases that replicas share; None: there is no other replica that could be known.
        clock: Its monotonic time is used.
    """

    def __init__(self, leases: Leasing | None, clock: Clock) -> None:
        self._leases = leases
        self._clock = clock
        self._token = uuid4().hex

    async def take(self) -> bool:
        """Take it; False while another replica has it. Raises `Unavailable` if nobody knows."""
        return self._leases is None or await self._leases.acquire(_NAME, self._token, LEASE_S)

    async def lost(self) -> None:
        """Keep it, and return once it cannot be kept any longer."""
        kept = self._clock.monotonic()
        while self._clock.monotonic() < kept + LEASE_S:
            await asyncio.sleep(RENEW_S)
            with suppress(Unavailable):
                asked = self._clock.monotonic()
                if not await self.take():
                    return
                kept = asked

    async def give_back(self) -> None:
        """Let others have it."""
        if self._leases is not None:
            with suppress(Unavailable):  # it ends by itself
                await self._leases.release(_NAME, self._token)
