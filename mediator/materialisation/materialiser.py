"""The materialiser of a partition: among all replicas one maintains it, under a lease."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from mediator.base.cancellation import end
from mediator.base.clock import Clock
from mediator.base.errors import MediatorError
from mediator.changes.feed import LeaseLost
from mediator.changes.log_relays import Leasing
from mediator.materialisation.builds import Builds
from mediator.materialisation.refresh import Refresher, Slot
from mediator.materialisation.state import ViewState
from mediator.stores.port import StoreError

__all__ = ["Materialiser", "period_s"]

log = logging.getLogger(__name__)

LEASE_S: Final = 2.0
RENEW_S: Final = 0.5
PAUSE_S: Final = 0.5
MAX_PAUSE_S: Final = 4.0
REPORT_S: Final = 1.0

_MAX_PERIOD_S: Final = 1.0
_REFRESHES_IN_BOUND: Final = 4
_MIN_WAIT_S: Final = 0.01
_US: Final = 1_000_000


def period_s(staleness_s: float) -> float:
    """Return the time between the starts of two refreshes, for a bound; both in seconds.

    The bound is on the delay, so a refresh's own duration has to fit in as well
    (docs/papers/ppm.md, Traps).
    """
    return min(_MAX_PERIOD_S, staleness_s / _REFRESHES_IN_BOUND)


class Materialiser:
    """Materialises one partition whenever it gets the lease.

    Args:
        slot: The partition.
        refresher: Refreshes its copies.
        builds: Its builds.
        staleness_s: Returns the bound of the database, in seconds.
        leases: Leases.
        state: Where it publishes its progress.
        clock: The time.
    """

    def __init__(
        self,
        slot: Slot,
        refresher: Refresher,
        builds: Builds,
        staleness_s: Callable[[], float],
        leases: Leasing,
        state: ViewState,
        clock: Clock,
    ) -> None:
        self._slot = slot
        self._refresher = refresher
        self._builds = builds
        self._staleness_s = staleness_s
        self._leases = leases
        self._state = state
        self._clock = clock
        self._pause_s = PAUSE_S
        self._reported_at = float("-inf")

    async def run(self) -> None:
        """Materialise until cancelled, whatever happens."""
        while True:
            await self._attempt()
            await asyncio.sleep(self._pause_s)

    async def _attempt(self) -> None:
        slot = self._slot
        try:
            await self._hold()
        except LeaseLost:
            log.info(
                "another replica materialises partition %s of %s now", slot.partition, slot.database
            )
        except (MediatorError, StoreError) as error:
            if self._pause_s == PAUSE_S:
                log.warning("materialising %s: %s", slot.database, error)
            self._pause_s = min(2 * self._pause_s, MAX_PAUSE_S)
            await self._report_error(error)
        except Exception:
            log.exception("materialising %s failed", slot.database)

    async def _hold(self) -> None:
        """Work while the lease is held; it is renewed meanwhile, as a refresh may take long."""
        lease = self._slot.lease
        if not await self._leases.acquire(lease.name, lease.token, LEASE_S):
            return
        work = asyncio.create_task(self._work())
        try:
            while not (await asyncio.wait({work}, timeout=RENEW_S))[0]:
                if not await self._leases.acquire(lease.name, lease.token, LEASE_S):
                    raise LeaseLost
            work.result()
        finally:
            await end([work])
            await self._builds.cancel()
            await self._release()

    async def _work(self) -> None:
        while True:
            started_at = self._clock.monotonic()
            is_complete = await self._refresher.refresh()
            self._pause_s = PAUSE_S
            await self._report()
            left = period_s(self._staleness_s()) - (self._clock.monotonic() - started_at)
            await asyncio.sleep(max(_MIN_WAIT_S, left) if is_complete else _MIN_WAIT_S)

    async def _report(self) -> None:
        now = self._clock.monotonic()
        if now - self._reported_at < REPORT_S:
            return
        self._reported_at = now
        await self._publish_progress()

    async def _publish_progress(self) -> None:
        slot = self._slot
        report = self._refresher.progress.document(slot.lease.token, int(self._clock.now() * _US))
        await self._state.publish(slot.database, f"partition/{slot.partition}", report)

    async def _report_error(self, error: Exception) -> None:
        self._refresher.progress.error = str(error)
        with suppress(MediatorError):
            await self._publish_progress()

    async def _release(self) -> None:
        with suppress(MediatorError):  # it expires soon
            await self._leases.release(self._slot.lease.name, self._slot.lease.token)
