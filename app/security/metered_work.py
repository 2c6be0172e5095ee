"""What the service does on its own, counted and bounded as requests of the database's owner.

That is what message flows invoke, and what results of standing queries write to classes. There is
nobody to be refused: beyond a limit a flow waits, and its messages with it; so do results.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from app.security.rate_limits import TenantLimiter
from mediator.access.metered_plane import MeteredPlane
from mediator.access.metering import Meter
from mediator.access.model import OPERATOR
from mediator.base.errors import MediatorError, Unavailable
from mediator.base.observation import Observer, RequestDelayed, RequestRefused
from mediator.data_plane.port import DataPlane

__all__ = ["MeteredWork"]

_LONGEST_PAUSE_S: Final = 1.0
"""After which limits and owners are looked at again: they may be others."""


@dataclass(eq=False)
class MeteredWork:
    """The accounts are those of the data port.

    Refusals of admission control are for requests of clients: rules pause flows and queries
    instead.
    """

    _limiter: TenantLimiter
    _owner: Callable[[str], str | None]
    _observe: Observer

    @asynccontextmanager
    async def admitted(self, plane: DataPlane, database: str) -> AsyncIterator[DataPlane]:
        """Implements `mediator.data_plane.port.Admitted`."""
        meter = await self._enter(database)
        try:
            yield MeteredPlane(plane, meter) if meter.bounds_operations else plane
        except MediatorError as error:
            if (limit := meter.limit_of(error)) is not None:
                self._observe(RequestRefused(meter.tenant, limit))
            raise
        finally:
            self._limiter.leave(meter)

    async def _enter(self, database: str) -> Meter:
        """Count a request in as soon as the limits let it."""
        waits = False
        while True:
            meter = self._account(database)
            delay = None if meter is None else meter.delay
            if meter is not None and delay is None:
                # Nothing has happened since `delay` was looked at, so it is not refused.
                meter.enter()
                return meter
            if meter is not None and delay is not None and not waits:
                waits = True
                self._observe(RequestDelayed(meter.tenant, delay.limit))
            seconds = _LONGEST_PAUSE_S if delay is None else delay.seconds
            await asyncio.sleep(min(seconds, _LONGEST_PAUSE_S))

    def _account(self, database: str) -> Meter | None:
        """Return the account that is charged; None: owners and limits are not known now."""
        try:
            return self._limiter.account(self._owner(database) or OPERATOR)
        except Unavailable:
            return None
