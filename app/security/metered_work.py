"""Work of the service itself, counted and limited as requests of the database's owner.

Message flows invoke operations, and standing queries write results to classes. Such work cannot be
refused: beyond a limit, flows with their messages, and results, wait.
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

_MAX_PAUSE_S: Final = 1.0
"""Time after which limits and owners, which may have changed, are checked again."""


@dataclass(eq=False)
class MeteredWork:
    """Charges work to the accounts of the data port.

    The refusals of admission control do not apply: rules pause flows and queries instead.
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
        """Count a request in as soon as the limits allow it."""
        is_delayed = False
        while True:
            meter = self._account(database)
            delay = None if meter is None else meter.delay
            if meter is not None and delay is None:
                # Not refused: there was no await since `delay` was read.
                meter.enter()
                return meter
            if meter is not None and delay is not None and not is_delayed:
                is_delayed = True
                self._observe(RequestDelayed(meter.tenant, delay.limit))
            seconds = _MAX_PAUSE_S if delay is None else delay.seconds
            await asyncio.sleep(min(seconds, _MAX_PAUSE_S))

    def _account(self, database: str) -> Meter | None:
        """Return the account to charge; None: owners and limits are not available."""
        try:
            return self._limiter.account(self._owner(database) or OPERATOR)
        except Unavailable:
            return None
