"""The views of all databases: their materialisers, and what this replica knows of their age."""

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
from mediator.materialisation.isolation import Bringer
from mediator.materialisation.materialiser import Materialiser
from mediator.materialisation.rounds import Rounds, Slot
from mediator.materialisation.state import ViewState
from mediator.materialisation.watermarks import Location, Marks, Watermarks
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
    """Keeps a materialiser for every partition of every database that has a view.

    Args:
        systems: The opened systems.
        copier: Copies objects.
        feed: The feeds.
        state: What is known of the copies.
        leases: Leases.
        watermarks: Told of what is known, for reads.
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
        self._bringer = Bringer(systems, copier)
        self._feed = feed
        self._state = state
        self._leases = leases
        self._watermarks = watermarks
        self._model = model
        self._replica = replica
        self._clock = clock
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}

    async def tend(self) -> None:
        """Begin with databases that have a view now, end with those that have none any more."""
        databases = databases_with_view(self._model())
        wanted = {(id_, number) for id_ in databases for number in range(PARTITIONS)}
        over = {slot for slot, task in self._tasks.items() if slot not in wanted or task.done()}
        await self._end(over)
        for database, number in sorted(wanted - self._tasks.keys()):
            keeping = self._materialiser(database, number).keep()
            self._tasks[database, number] = asyncio.create_task(keeping)

    async def learn(self) -> None:
        """Ask up to when the copies are complete, for reads of this replica."""
        databases = databases_with_view(self._model())
        asked_at = self._clock.monotonic()
        marks = await asyncio.gather(*(self._state.marks(id_) for id_ in databases))
        if marks:
            self._watermarks.learn(_joined(marks), asked_at)

    async def close(self) -> None:
        """End with all of them."""
        await self._end(set(self._tasks))

    async def _end(self, slots: set[tuple[str, int]]) -> None:
        await end([self._tasks.pop(slot) for slot in slots])

    def _materialiser(self, database: str, number: int) -> Materialiser:
        slot = Slot(database, number, Lease(f"materialise:{database}:{number}", self._replica))
        builds = Builds(self._systems, self._copier, self._bringer, number, self._clock)
        routes = partial(self._routes, database)
        rounds = Rounds(slot, routes, self._feed, self._state, self._copier, self._bringer, builds)
        bound = partial(self._staleness_s, database)
        return Materialiser(slot, rounds, builds, bound, self._leases, self._state, self._clock)

    def _routes(self, database: str) -> Mapping[str, ClassRoute]:
        return copied_classes(self._model(), database)

    def _staleness_s(self, database: str) -> float:
        found = self._model().by_id.get(database)
        return found.schema.materialised_view.staleness_s if found else 1.0


def _joined(marks: Sequence[Marks]) -> Marks:
    """Join what was learnt of several databases; all was read after the time of asking."""
    until: dict[Location, Sequence[int | None]] = {}
    for each in marks:
        until.update(each.until_tick)
    return Marks(min(each.tick for each in marks), until)
