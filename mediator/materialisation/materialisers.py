"""The materialisers of this replica: of each partition, one replica has the lease and refreshes it.

They also read the watermarks for this replica's reads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final

from mediator.base.concurrency import end
from mediator.base.errors import MediatorError
from mediator.base.lease import Lease, LeaseLost, while_held
from mediator.changes.feed import PARTITIONS
from mediator.materialisation.builds import Builds
from mediator.materialisation.context import ViewContext, copied_classes, databases_with_view
from mediator.materialisation.copier import Copier
from mediator.materialisation.refresh import Refresher, Slot
from mediator.materialisation.state import WatermarkSnapshot
from mediator.routing.model import ClassRoute
from mediator.stores.port import StoreError

__all__ = ["Materialisers", "period_s"]

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


@dataclass(eq=False)
class Materialiser:
    """Materialises one partition whenever it gets the lease."""

    _context: ViewContext
    _slot: Slot
    _refresher: Refresher
    _builds: Builds
    _pause_s: float = PAUSE_S
    _reported_at: float = -inf

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
            self._refresher.progress.error = str(error)
            with suppress(MediatorError):
                await self._publish_progress()
        except Exception:
            log.exception("materialising %s failed", slot.database)

    async def _hold(self) -> None:
        """Work while the lease is held; it is renewed meanwhile, as a refresh may take long."""
        lease, leases = self._slot.lease, self._context.leases
        acquire = partial(leases.acquire, lease.name, lease.token, LEASE_S)
        if not await acquire():
            return
        try:
            await while_held(acquire, RENEW_S, self._work())
        finally:
            await self._builds.cancel()
            with suppress(MediatorError):  # it expires soon
                await leases.release(lease.name, lease.token)

    async def _work(self) -> None:
        now = self._context.clock.monotonic
        while True:
            started_at = now()
            is_complete = await self._refresher.refresh()
            self._pause_s = PAUSE_S
            if now() - self._reported_at >= REPORT_S:
                self._reported_at = now()
                await self._publish_progress()
            left_s = period_s(self._staleness_s()) - (now() - started_at)
            await asyncio.sleep(max(_MIN_WAIT_S, left_s) if is_complete else _MIN_WAIT_S)

    def _staleness_s(self) -> float:
        found = self._context.model().by_id.get(self._slot.database)
        return found.schema.materialised_view.staleness_s if found else 1.0

    async def _publish_progress(self) -> None:
        slot, at_us = self._slot, int(self._context.clock.now() * _US)
        report = self._refresher.progress.document(slot.lease.token, at_us)
        await self._context.state.publish(slot.database, f"partition/{slot.partition}", report)


class Materialisers:
    def __init__(self, context: ViewContext, copier: Copier) -> None:
        self._context = context
        self._copier = copier
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}

    async def reconcile(self) -> None:
        """Start materialisers of new views, cancel those of views that are gone."""
        databases = databases_with_view(self._context.model())
        needed = {(id_, number) for id_ in databases for number in range(PARTITIONS)}
        obsolete = {slot for slot, task in self._tasks.items() if slot not in needed or task.done()}
        await self._cancel(obsolete)
        for database, number in sorted(needed - self._tasks.keys()):
            run = self._materialiser(database, number).run()
            self._tasks[database, number] = asyncio.create_task(run)

    async def read_watermarks(self) -> None:
        """Read up to when the copies are complete, for reads of this replica."""
        context = self._context
        databases = databases_with_view(context.model())
        # Taken before the request, so that copies may seem older than they are, never younger.
        requested_at = context.clock.monotonic()
        snapshots = await asyncio.gather(*map(context.state.watermarks, databases))
        if snapshots:
            # Joined, the oldest tick counts for all databases.
            until = {copy: ticks for each in snapshots for copy, ticks in each.until_tick.items()}
            oldest = min(each.tick for each in snapshots)
            context.watermarks.update(WatermarkSnapshot(oldest, until), requested_at)

    async def close(self) -> None:
        await self._cancel(set(self._tasks))

    async def _cancel(self, slots: set[tuple[str, int]]) -> None:
        await end([self._tasks.pop(slot) for slot in slots])

    def _materialiser(self, database: str, number: int) -> Materialiser:
        context, copier = self._context, self._copier
        slot = Slot(database, number, Lease(f"materialise:{database}:{number}", context.replica))
        builds = Builds(copier, number, context.clock)

        def routes() -> Mapping[str, ClassRoute]:
            return copied_classes(context.model(), database)

        refresher = Refresher(slot, routes, context.feed, context.state, copier, builds)
        return Materialiser(context, slot, refresher, builds)
