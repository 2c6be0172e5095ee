"""The materialisers of this replica: of each partition, one replica has the lease and refreshes it.

They also read the watermarks for this replica's reads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from mediator.base.cancellation import end
from mediator.base.clock import Clock
from mediator.base.errors import MediatorError
from mediator.base.lease import Lease, Leasing
from mediator.changes.feed import PARTITIONS, Feed, LeaseLost
from mediator.materialisation.builds import Builds
from mediator.materialisation.copier import Copier
from mediator.materialisation.refresh import Refresher, Slot
from mediator.materialisation.state import CopyKey, ViewState, Watermarks, WatermarkSnapshot
from mediator.routing.model import ClassRoute, RoutingModel
from mediator.stores.port import StoreError
from mediator.stores.systems import Systems

__all__ = ["Materialiser", "Materialisers", "copied_classes", "databases_with_view", "period_s"]

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


def copied_classes(model: RoutingModel, database_id: str) -> dict[str, ClassRoute]:
    """Return the classes of a database that have a copy, by name."""
    found = model.by_id.get(database_id)
    classes = found.classes if found else {}
    return {name: route for name, route in classes.items() if route.copy is not None}


def databases_with_view(model: RoutingModel) -> list[str]:
    """Return the ids of the databases that have a view."""
    return [id_ for id_ in model.by_id if copied_classes(model, id_)]


class Materialisers:
    """Runs a materialiser for every partition of every database that has a view.

    Args:
        systems: The opened systems.
        copier: Copies objects.
        feed: The feeds.
        state: The states of the copies.
        leases: Leases.
        watermarks: Updated for reads of this replica.
        model: Returns the routing model in force.
        replica: Name of this replica.
        clock: The time.
    """

    def __init__(
        self,
        systems: Systems,
        copier: Copier,
        feed: Feed,
        state: ViewState,
        leases: Leasing,
        watermarks: Watermarks,
        model: Callable[[], RoutingModel],
        replica: str,
        clock: Clock,
    ) -> None:
        self._systems = systems
        self._copier = copier
        self._feed = feed
        self._state = state
        self._leases = leases
        self._watermarks = watermarks
        self._model = model
        self._replica = replica
        self._clock = clock
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}

    async def reconcile(self) -> None:
        """Start materialisers of new views, cancel those of views that are gone."""
        databases = databases_with_view(self._model())
        needed = {(id_, number) for id_ in databases for number in range(PARTITIONS)}
        obsolete = {slot for slot, task in self._tasks.items() if slot not in needed or task.done()}
        await self._cancel(obsolete)
        for database, number in sorted(needed - self._tasks.keys()):
            run = self._materialiser(database, number).run()
            self._tasks[database, number] = asyncio.create_task(run)

    async def read_watermarks(self) -> None:
        """Read up to when the copies are complete, for reads of this replica."""
        databases = databases_with_view(self._model())
        requested_at = self._clock.monotonic()
        snapshots = await asyncio.gather(*(self._state.watermarks(id_) for id_ in databases))
        if snapshots:
            self._watermarks.update(_joined(snapshots), requested_at)

    async def close(self) -> None:
        """Cancel all of them."""
        await self._cancel(set(self._tasks))

    async def _cancel(self, slots: set[tuple[str, int]]) -> None:
        await end([self._tasks.pop(slot) for slot in slots])

    def _materialiser(self, database: str, number: int) -> Materialiser:
        slot = Slot(database, number, Lease(f"materialise:{database}:{number}", self._replica))
        builds = Builds(self._systems, self._copier, number, self._clock)
        routes = partial(self._routes, database)
        refresher = Refresher(slot, routes, self._feed, self._state, self._copier, builds)
        bound = partial(self._staleness_s, database)
        return Materialiser(slot, refresher, builds, bound, self._leases, self._state, self._clock)

    def _routes(self, database: str) -> Mapping[str, ClassRoute]:
        return copied_classes(self._model(), database)

    def _staleness_s(self, database: str) -> float:
        found = self._model().by_id.get(database)
        return found.schema.materialised_view.staleness_s if found else 1.0


def _joined(snapshots: Sequence[WatermarkSnapshot]) -> WatermarkSnapshot:
    """Join snapshots of several databases; the oldest tick counts for all."""
    until: dict[CopyKey, Sequence[int | None]] = {}
    for each in snapshots:
        until.update(each.until_tick)
    return WatermarkSnapshot(min(each.tick for each in snapshots), until)
