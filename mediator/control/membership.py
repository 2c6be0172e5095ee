"""The write lease of a replica, and the epochs that all replicas have in force.

Each replica confirms every second which epoch it has in force, which renews the lease. A replica
that places a class elsewhere waits until every other one has confirmed its hold, or has lost its
lease (docs/replicas.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Final

from mediator.base.clock import Clock
from mediator.base.errors import Unavailable
from mediator.catalogue.replicas import CatalogueReplicas
from mediator.operations.calls import StoreCalls

__all__ = ["LEASE_S", "Membership"]

LEASE_S: Final = 120.0
"""Seconds for which a replica without the catalogue continues to write."""

EXPIRED_S: Final = LEASE_S + 5.0
"""Clock rates hardly differ: after this time, by the catalogue's clock, a lease has expired."""

TIMEOUT_S: Final = 10.0
_PAUSE_S: Final = 0.05


@dataclass(eq=False)
class Membership:
    """This replica's membership among all replicas.

    `in_force` looks at the catalogue, puts changes in force, and returns the epoch.
    """

    _replicas: CatalogueReplicas
    _name: str
    _in_force: Callable[[], Awaitable[int]]
    _calls: StoreCalls
    _clock: Clock

    async def renew(self) -> None:
        """Confirm the epoch in force; raises `Unavailable` if the catalogue does not answer."""
        while True:
            # Others count the lease from its confirmation, which is later.
            started_at = self._clock.monotonic()
            epoch = await self._in_force()
            # Writes that began before the hold end before it is confirmed.
            await self._calls.admission.drained()
            if await self._replicas.confirm(self._name, epoch):
                self._calls.admission.lease_until = started_at + LEASE_S
                return
            # It was removed. After joining, look again: earlier changes did not wait for it.
            await self._replicas.join(self._name)

    async def reap(self) -> None:
        """Remove replicas that have ended without leaving; raises `Unavailable`.

        `agree` does this as well, but schemas may stay unchanged for months.
        """
        await self._replicas.remove_expired(self._name, EXPIRED_S)

    async def close(self) -> None:
        """Leave; a write that still ends is not acknowledged."""
        self._calls.admission.lease_until = -inf
        with suppress(Unavailable):
            await self._replicas.leave(self._name)

    async def agree(self, epoch: int) -> None:
        """Wait until no replica writes under an epoch before `epoch`, which is in force here.

        Raises:
            Unavailable: Another replica does not confirm, and may still hold its lease; or a write
                of this one does not end.
        """
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._calls.admission.drained()
        except TimeoutError:
            detail = "Writes that are under way do not end; nothing was changed, try again."
            raise Unavailable(detail, system="catalogue") from None
        until = self._clock.monotonic() + TIMEOUT_S
        while late := await self._replicas.behind(self._name, epoch, EXPIRED_S):
            if self._clock.monotonic() > until:
                raise Unavailable(
                    f"Replicas ({len(late)}) do not confirm that they hold their writes; one that"
                    f" has ended without leaving is removed after {EXPIRED_S:.0f} s.",
                    system="catalogue",
                    retry_after_s=30,
                )
            await asyncio.sleep(_PAUSE_S)
