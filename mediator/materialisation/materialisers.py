"""The materialisers of this replica: one replica holds a partition's lease and refreshes it.

They also read the watermarks for this replica's reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

from mediator.base.errors import PortolanError
from mediator.base.holding import Holder, Holders
from mediator.base.lease import Lease
from mediator.changes.feed import PARTITIONS
from mediator.materialisation.builds import Builds
from mediator.materialisation.context import ViewContext, copied_classes, databases_with_view
from mediator.materialisation.copier import Copier
from mediator.materialisation.refresh import Refresher, Slot
from mediator.materialisation.state import WatermarkSnapshot
from mediator.routing.model import ClassRoute

__all__ = ["Materialisers", "period_s"]

MAX_PAUSE_S: Final = 4.0
REPORT_S: Final = 1.0

_MAX_PERIOD_S: Final = 1.0
_REFRESHES_IN_BOUND: Final = 4
_MIN_WAIT_S: Final = 0.01
_US: Final = 1_000_000


def period_s(staleness_s: float) -> float:
    """Return the time between the starts of two refreshes, for a bound; both in seconds.

    The bound is on the delay, so it must include a refresh's own duration as well
    (docs/papers/ppm.md, Traps).
    """
    return min(_MAX_PERIOD_S, staleness_s / _REFRESHES_IN_BOUND)


@dataclass(eq=False)
class Materialiser:
    """Materialises one partition while it has the lease."""

    _context: ViewContext
    _slot: Slot
    _refresher: Refresher
    _builds: Builds
    _reported_at: float = -inf

    async def run(self) -> None:
        """Materialise until cancelled, despite errors."""
        slot, context = self._slot, self._context
        name = f"materialise:{slot.database}:{slot.partition}"
        description = f"partition {slot.partition} of the view of {slot.database}"
        holder = Holder(
            context.leases,
            context.replica,
            name,
            description,
            has_ended=lambda: False,
            max_pause_s=MAX_PAUSE_S,
            on_error=self._failed,
        )
        await holder.run(self._work)

    async def _work(self, lease: Lease) -> None:
        now = self._context.clock.monotonic
        try:
            while True:
                started_at = now()
                is_complete = await self._refresher.refresh(lease)
                if now() - self._reported_at >= REPORT_S:
                    self._reported_at = now()
                    await self._publish_progress()
                remaining_s = period_s(self._staleness_s()) - (now() - started_at)
                await asyncio.sleep(max(_MIN_WAIT_S, remaining_s) if is_complete else _MIN_WAIT_S)
        finally:
            await self._builds.cancel()

    async def _failed(self, error: PortolanError) -> None:
        self._refresher.progress.error = str(error)
        await self._publish_progress()

    def _staleness_s(self) -> float:
        database = self._context.model().by_id.get(self._slot.database)
        return database.schema.materialised_view.staleness_s if database else 1.0

    async def _publish_progress(self) -> None:
        slot, at_us = self._slot, int(self._context.clock.now() * _US)
        report = self._refresher.progress.document(self._context.replica, at_us)
        await self._context.state.publish(slot.database, f"partition/{slot.partition}", report)


class Materialisers:
    def __init__(self, context: ViewContext, copier: Copier) -> None:
        self._context = context
        self._copier = copier
        self._holders = Holders[Slot]()

    async def reconcile(self) -> None:
        """Start materialisers of new views, cancel those of removed views."""
        databases = databases_with_view(self._context.model())
        slots = {Slot(id_, number) for id_ in databases for number in range(PARTITIONS)}
        await self._holders.reconcile(slots, lambda slot: self._materialiser(slot).run())

    async def read_watermarks(self) -> None:
        """Read the watermarks of the copies for reads of this replica."""
        context = self._context
        databases = databases_with_view(context.model())
        # Before the request: copies may seem older than they are, never younger.
        requested_at = context.clock.monotonic()
        snapshots = await asyncio.gather(*map(context.state.watermarks, databases))
        if snapshots:
            # In the merged snapshot, the oldest tick counts for all databases.
            until = {
                copy: ticks for snapshot in snapshots for copy, ticks in snapshot.until_tick.items()
            }
            oldest = min(snapshot.tick for snapshot in snapshots)
            context.watermarks.update(WatermarkSnapshot(oldest, until), requested_at)

    async def close(self) -> None:
        await self._holders.cancel()

    def _materialiser(self, slot: Slot) -> Materialiser:
        context, copier = self._context, self._copier
        builds = Builds(copier, slot.partition, context.clock)

        def routes() -> Mapping[str, ClassRoute]:
            return copied_classes(context.model(), slot.database)

        refresher = Refresher(slot, routes, context.feed, context.state, copier, builds)
        return Materialiser(context, slot, refresher, builds)
