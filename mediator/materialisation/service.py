"""All that keeps views up, and shows them, in one replica."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mediator.base.clock import Clock
from mediator.base.errors import Conflict, NotFound
from mediator.base.observation import Observer
from mediator.base.periodic_tasks import PeriodicTask
from mediator.changes.feed import Feed
from mediator.changes.log_relays import Leasing
from mediator.materialisation.audit import Audit
from mediator.materialisation.copier import Copier
from mediator.materialisation.inspection import View
from mediator.materialisation.lateness import Lateness, ViolationLog
from mediator.materialisation.state import ViewState
from mediator.materialisation.upkeep import Kind, Upkeep
from mediator.materialisation.views import Materialisers, copied_classes, databases_with_view
from mediator.materialisation.watermarks import Watermarks, place_of
from mediator.operations.calls import StoreCalls
from mediator.routing.model import ClassRoute, RoutingModel
from mediator.stores.port import Fragment, StoreError
from mediator.stores.systems import EarliestTime, unavailable

__all__ = ["MaterialiseService", "Shared"]

Shared = tuple[Feed, ViewState, Leasing]
"""What replicas share: the feeds, what is known of the copies, leases."""


class _Works:
    """What there is to do where replicas share something."""

    def __init__(
        self,
        calls: StoreCalls,
        watermarks: Watermarks,
        model: Callable[[], RoutingModel],
        shared: Shared,
        events: ViolationLog,
        replica: str,
        observe: Observer,
        clock: Clock,
    ) -> None:
        feed, self.state, leases = shared
        systems, copier = calls.systems, Copier(calls)
        self.materialisers = Materialisers(
            systems, copier, feed, self.state, leases, watermarks, model, replica, clock
        )
        self.lateness = Lateness(watermarks, model, events, leases, replica, observe, clock)
        self.view = View(feed, self.state, watermarks, clock)
        audit = Audit(systems, copier, EarliestTime(systems, clock))
        self.upkeep = Upkeep(audit, self.state, leases, model, self._count, clock)
        self._systems = systems

    async def _count(self, route: ClassRoute) -> int:
        guarded = self._systems.get(route.anchor.system)
        try:
            return await guarded.guarded(lambda: guarded.store.count(route.anchor))
        except StoreError as error:
            raise unavailable(guarded, error, "read") from error


class MaterialiseService:
    """The materialisers of this replica, and what operators may ask of views.

    Args:
        calls: Sends store calls.
        watermarks: What reads go by.
        model: Returns the routing model in force.
        shared: What replicas share; None: nothing, and no view is kept up.
        events: Keeps violations.
        replica: Name of this replica.
        observe: Told of what happens.
        clock: The time.
    """

    def __init__(
        self,
        calls: StoreCalls,
        watermarks: Watermarks,
        model: Callable[[], RoutingModel],
        shared: Shared | None,
        events: ViolationLog,
        replica: str,
        observe: Observer,
        clock: Clock,
    ) -> None:
        self._model = model
        self._watermarks = watermarks
        self._works = (
            _Works(calls, watermarks, model, shared, events, replica, observe, clock)
            if shared
            else None
        )

    @property
    def is_at_work(self) -> bool:
        """Whether views are kept up at all."""
        return self._works is not None

    def periodic_tasks(self) -> list[PeriodicTask]:
        """Return what is to be done in the background."""
        works = self._works
        if works is None:
            return []
        return [
            PeriodicTask("learning how old the views' copies are", 0.2, works.materialisers.learn),
            PeriodicTask("looking for views that get late", 1.0, works.lateness.watch),
        ]

    def relaying_duties(self) -> list[PeriodicTask]:
        """Return what any process may do."""
        if self._works is None:
            return []
        return [PeriodicTask("tending the materialisers", 0.5, self._works.materialisers.tend)]

    async def close(self) -> None:
        """End; the periodic tasks have ended before."""
        if self._works is not None:
            await self._works.upkeep.close()
            await self._works.materialisers.close()

    async def retract(self, copies: Sequence[Fragment]) -> None:
        """Take copies for incomplete, whatever is known of them; raises `Unavailable`."""
        if self._works is not None:
            for copy in copies:
                database, name = place_of(copy)
                await self._works.state.retract(database, [name])

    def ages(self) -> dict[tuple[str, str], float]:
        """Return how old copies may be in seconds, by database and class, where it is known."""
        model, measure = self._model(), self._watermarks.measured_s
        ages = {
            (model.by_id[database].schema.database, name): measure(route)
            for database in databases_with_view(model)
            for name, route in copied_classes(model, database).items()
        }
        return {of_class: age_s for of_class, age_s in ages.items() if age_s is not None}

    async def overview(self) -> list[dict[str, Any]]:
        """Describe all views."""
        ids = sorted(databases_with_view(self._model()))
        return [await self._sharing().view.describe(self._model(), id_) for id_ in ids]

    async def describe(self, database: str) -> dict[str, Any]:
        """Describe the view of a database; raises `NotFound`."""
        id_ = self._id_of(database)
        return await self._sharing().view.describe(self._model(), id_)

    async def begin(self, database: str, kind: Kind, *, repair: bool = False) -> dict[str, Any]:
        """Begin a run over a view; return what `describe` tells by then.

        Raises:
            NotFound: The database has no view.
            Conflict: Another run is going on, or no views are kept up.
        """
        id_ = self._id_of(database)
        await self._sharing().upkeep.begin(id_, kind, repair=repair)
        return await self.describe(database)

    def _id_of(self, database: str) -> str:
        found = self._model().databases.get(database)
        if found is None or not copied_classes(self._model(), found.id):
            raise NotFound(f"There is no database {database} with a view.")
        return found.id

    def _sharing(self) -> _Works:
        if self._works is None:
            raise Conflict("Without a coordination Redis no view is kept up.")
        return self._works
