"""The materialisers of this replica, and the watermarks it reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from mediator.base.cancellation import end
from mediator.base.clock import Clock
from mediator.base.lease import Lease
from mediator.changes.feed import Feed
from mediator.changes.log_relays import Leasing
from mediator.changes.partitions import PARTITIONS
from mediator.materialisation.builds import Builds
from mediator.materialisation.copier import Copier
from mediator.materialisation.materialiser import Materialiser
from mediator.materialisation.refresh import Refresher, Slot
from mediator.materialisation.state import ViewState
from mediator.materialisation.watermarks import CopyKey, Watermarks, WatermarkSnapshot
from mediator.routing.model import ClassRoute, RoutingModel
from mediator.stores.systems import Systems

__all__ = ["Materialisers", "copied_classes", "databases_with_view"]


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
