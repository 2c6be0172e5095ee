"""Maintenance and description of materialised views in one replica."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from mediator.base.clock import Clock, StabilityTimer
from mediator.base.errors import Conflict, NotFound
from mediator.base.lease import Leasing
from mediator.base.observation import Observer
from mediator.base.periodic_tasks import PeriodicTask
from mediator.changes.feed import PARTITIONS, Feed, PositionGone
from mediator.materialisation.audit import Audit
from mediator.materialisation.copier import Copier
from mediator.materialisation.maintenance import Kind, MaintenanceRuns, with_interruption
from mediator.materialisation.materialisers import (
    Materialisers,
    copied_classes,
    databases_with_view,
)
from mediator.materialisation.staleness import StalenessMonitor, ViolationLog
from mediator.materialisation.state import (
    CopyState,
    PartitionState,
    ViewState,
    Watermarks,
    copy_key,
)
from mediator.operations.calls import StoreCalls
from mediator.routing.model import ClassRoute, RoutingModel
from mediator.stores.port import Fragment, StoreError
from mediator.stores.systems import EarliestTime, unavailable

__all__ = ["Shared", "ViewInspector", "ViewService"]

MAX_PENDING: Final = 1_000
"""Changes that are counted as waiting, at most."""


class ViewInspector:
    """Describes views, on any replica.

    Args:
        feed: The feeds.
        state: The states and reports of the copies.
        watermarks: Measure their age.
        clock: The time.
    """

    def __init__(self, feed: Feed, state: ViewState, watermarks: Watermarks, clock: Clock) -> None:
        self._feed = feed
        self._state = state
        self._age_s = watermarks.age_s
        self._clock = clock
        self._runs: StabilityTimer[str] = StabilityTimer(clock)

    async def describe(self, model: RoutingModel, database: str) -> dict[str, Any]:
        """Describe the view of the database of an id.

        Raises:
            Unavailable: The coordination Redis does not answer.
        """
        requested_at = self._clock.monotonic()
        reports = await self._state.reports(database)
        states = [await self._state.load(database, number) for number in range(PARTITIONS)]
        routes, schema = copied_classes(model, database), model.by_id[database].schema
        return {
            "database": schema.database,
            "staleness_s": schema.materialised_view.staleness_s,
            "classes": {n: self._class(route, states, reports) for n, route in routes.items()},
            "partitions": [
                await self._partition(database, number, states[number], reports)
                for number in range(PARTITIONS)
            ],
            "run": self._run(database, reports["run"], requested_at) if "run" in reports else None,
        }

    def _run(self, database: str, run: dict[str, Any], requested_at: float) -> dict[str, Any]:
        return with_interruption(run, self._runs.observe(database, run, requested_at))

    async def _partition(
        self, database: str, number: int, state: PartitionState, reports: Mapping[str, Any]
    ) -> dict[str, Any]:
        progress = reports.get(f"partition/{number}", {})
        return {
            "partition": number,
            "waiting": await self._waiting(database, number, state),
            **{name: progress.get(name) for name in ("replica", "refreshes", "changes", "error")},
        }

    async def _waiting(self, database: str, number: int, state: PartitionState) -> int | None:
        """Count the changes that the materialiser has not applied yet."""
        if state.cursor is None:
            return None
        _, _, after = state.cursor.partition("/")
        try:
            return len(await self._feed.events(database, number, after, MAX_PENDING))
        except PositionGone:
            return None

    def _class(
        self, route: ClassRoute, states: list[PartitionState], reports: Mapping[str, Any]
    ) -> dict[str, Any]:
        assert route.copy is not None
        _, copy = copy_key(route.copy)
        partitions = [
            {"partition": number, **self._copy_state(each.copies.get(copy))}
            | _progress(route.schema.name, copy, reports.get(f"partition/{number}", {}))
            for number, each in enumerate(states)
        ]
        ages = [each["age_s"] for each in partitions]
        return {
            "system": route.copy.system,
            "age_s": None if None in ages else max(ages),
            "partitions": partitions,
        }

    def _copy_state(self, state: CopyState | None) -> dict[str, Any]:
        if state is None:
            return {"state": "waiting", "age_s": None, "stuck": []}
        until = state.until_tick
        return {
            "state": "building" if state.build else "stuck" if state.stuck else "complete",
            "age_s": None if until is None else self._age_s(until),
            "stuck": list(state.stuck),
        }


def _progress(class_name: str, copy: str, progress: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "progress": progress.get("builds", {}).get(copy),
        "dirty": progress.get("dirty", {}).get(class_name, 0),
        "written": progress.get("written", {}).get(class_name, 0),
        "forgotten": progress.get("forgotten", {}).get(class_name, 0),
    }


Shared = tuple[Feed, ViewState, Leasing]
"""What replicas share: the feeds, the states of the copies, the leases."""


class _Components:
    """The components that need what replicas share."""

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
        self.staleness = StalenessMonitor(
            watermarks, model, events, leases, replica, observe, clock
        )
        self.inspector = ViewInspector(feed, self.state, watermarks, clock)
        audit = Audit(systems, copier, EarliestTime(systems, clock))
        self.maintenance = MaintenanceRuns(audit, self.state, leases, model, self._count, clock)
        self._systems = systems

    async def _count(self, route: ClassRoute) -> int:
        guarded = self._systems.get(route.anchor.system)
        try:
            return await guarded.guarded(lambda: guarded.store.count(route.anchor))
        except StoreError as error:
            raise unavailable(guarded, error, "read") from error


class ViewService:
    """Maintains the views of this replica's partitions, and describes views to operators.

    Args:
        calls: Sends store calls.
        watermarks: Measure the age of copies, for reads.
        model: Returns the routing model in force.
        shared: What replicas share; None: nothing, and no view is maintained.
        events: Stores violations.
        replica: Name of this replica.
        observe: Called with each event.
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
        self._components = (
            _Components(calls, watermarks, model, shared, events, replica, observe, clock)
            if shared
            else None
        )

    @property
    def is_active(self) -> bool:
        """Whether views are maintained at all."""
        return self._components is not None

    def periodic_tasks(self) -> list[PeriodicTask]:
        """Return the periodic tasks of every process."""
        components = self._components
        if components is None:
            return []
        return [
            PeriodicTask("read watermarks of views", 0.2, components.materialisers.read_watermarks),
            PeriodicTask("check staleness of views", 1.0, components.staleness.check),
        ]

    def relaying_tasks(self) -> list[PeriodicTask]:
        """Return those of the process that relays."""
        if self._components is None:
            return []
        return [
            PeriodicTask("reconcile materialisers", 0.5, self._components.materialisers.reconcile)
        ]

    async def close(self) -> None:
        """Cancel the work; the periodic tasks have ended before."""
        if self._components is not None:
            await self._components.maintenance.close()
            await self._components.materialisers.close()

    async def retract(self, copies: Sequence[Fragment]) -> None:
        """Mark copies as incomplete, so that they are built anew; raises `Unavailable`."""
        if self._components is not None:
            for copy in copies:
                database, name = copy_key(copy)
                await self._components.state.retract(database, [name])

    def ages(self) -> dict[tuple[str, str], float]:
        """Return how old copies may be (s), by database and class, where it is known."""
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
        return [
            await self._require_components().inspector.describe(self._model(), id_) for id_ in ids
        ]

    async def describe(self, database: str) -> dict[str, Any]:
        """Describe the view of a database; raises `NotFound`."""
        id_ = self._id_of(database)
        return await self._require_components().inspector.describe(self._model(), id_)

    async def start_run(self, database: str, kind: Kind, *, repair: bool = False) -> dict[str, Any]:
        """Start a maintenance run; return the description of the view by then.

        Raises:
            NotFound: The database has no view.
            Conflict: Another run is going on, or no views are maintained.
        """
        id_ = self._id_of(database)
        await self._require_components().maintenance.start(id_, kind, repair=repair)
        return await self.describe(database)

    def _id_of(self, database: str) -> str:
        found = self._model().databases.get(database)
        if found is None or not copied_classes(self._model(), found.id):
            raise NotFound(f"There is no database {database} with a view.")
        return found.id

    def _require_components(self) -> _Components:
        if self._components is None:
            raise Conflict("Without a coordination Redis no view is maintained.")
        return self._components
