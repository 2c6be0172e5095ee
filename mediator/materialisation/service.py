"""Maintenance and description of materialised views in one replica."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from mediator.base.clock import StabilityTimer
from mediator.base.errors import Conflict, NotFound
from mediator.base.observation import Observer
from mediator.base.periodic_tasks import PeriodicTask
from mediator.changes.feed import PARTITIONS, PositionGone
from mediator.materialisation.audit import Audit
from mediator.materialisation.context import ViewContext, copied_classes, databases_with_view
from mediator.materialisation.copier import Copier
from mediator.materialisation.maintenance import SILENT_S, Kind, MaintenanceRuns
from mediator.materialisation.materialisers import Materialisers
from mediator.materialisation.staleness import StalenessMonitor, ViolationLog
from mediator.materialisation.state import CopyState, ViewPartition, copy_key
from mediator.routing.model import ClassRoute, RoutingModel
from mediator.stores.port import Fragment
from mediator.stores.systems import EarliestTime

__all__ = ["ViewService"]

MAX_PENDING: Final = 1_000
"""Maximum waiting changes that are counted."""


class _ViewInspector:
    def __init__(self, context: ViewContext) -> None:
        self._context = context
        self._runs = StabilityTimer(context.clock)

    async def describe(self, model: RoutingModel, database: str) -> dict[str, Any]:
        """Describe the view of a database, given by its id; raises `Unavailable`."""
        requested_at, state = self._context.clock.monotonic(), self._context.state
        reports = await state.reports(database)
        states = [await state.load(database, number) for number in range(PARTITIONS)]
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
        """Return the report of a run, as interrupted if it is no longer renewed."""
        silent_s = self._runs.observe(database, run, requested_at)
        if run["state"] == "running" and silent_s > SILENT_S:
            return {**run, "state": "interrupted", "detail": "its replica is gone"}
        return run

    async def _partition(
        self, database: str, number: int, state: ViewPartition, reports: Mapping[str, Any]
    ) -> dict[str, Any]:
        progress = reports.get(f"partition/{number}", {})
        return {
            "partition": number,
            "waiting": await self._waiting(database, number, state),
            **{name: progress.get(name) for name in ("replica", "refreshes", "changes", "error")},
        }

    async def _waiting(self, database: str, number: int, state: ViewPartition) -> int | None:
        """Count the changes not yet applied, up to `MAX_PENDING`; None: unknown."""
        if state.cursor is None:
            return None
        _, _, after = state.cursor.partition("/")
        try:
            return len(await self._context.feed.events(database, number, after, MAX_PENDING))
        except PositionGone:
            return None

    def _class(
        self, route: ClassRoute, states: list[ViewPartition], reports: Mapping[str, Any]
    ) -> dict[str, Any]:
        assert route.copy is not None
        _, copy = copy_key(route.copy)
        partitions = [
            {"partition": number, **self._copy_state(partition_state.copies.get(copy))}
            | _progress(route.schema.name, copy, reports.get(f"partition/{number}", {}))
            for number, partition_state in enumerate(states)
        ]
        ages = [partition["age_s"] for partition in partitions]
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
            "age_s": None if until is None else self._context.watermarks.age_s(until),
            "stuck": list(state.stuck),
        }


def _progress(class_name: str, copy: str, progress: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "progress": progress.get("builds", {}).get(copy),
        "dirty": progress.get("dirty", {}).get(class_name, 0),
        "written": progress.get("written", {}).get(class_name, 0),
        "forgotten": progress.get("forgotten", {}).get(class_name, 0),
    }


class ViewService:
    """Maintains the views of this replica's partitions, and describes views to operators.

    Without a context, replicas share nothing and no view is maintained.
    """

    def __init__(
        self,
        model: Callable[[], RoutingModel],
        context: ViewContext | None,
        events: ViolationLog,
        observe: Observer,
    ) -> None:
        self._model = model
        self._components = _Components(context, events, observe) if context else None

    @property
    def is_active(self) -> bool:
        return self._components is not None

    def periodic_tasks(self) -> list[PeriodicTask]:
        """Return the periodic tasks of every process."""
        if self._components is None:
            return []
        return [
            PeriodicTask("read watermarks of views", 0.2, self.read_watermarks),
            PeriodicTask("check staleness of views", 1.0, self._components.staleness.check),
        ]

    def relaying_tasks(self) -> list[PeriodicTask]:
        """Return the periodic tasks of the relaying process."""
        if self._components is None:
            return []
        return [
            PeriodicTask("reconcile materialisers", 0.5, self._components.materialisers.reconcile)
        ]

    async def read_watermarks(self) -> None:
        await self._require_components().materialisers.read_watermarks()

    async def close(self) -> None:
        """Cancel the work; the periodic tasks have already ended."""
        if self._components is not None:
            await self._components.maintenance.close()
            await self._components.materialisers.close()

    async def retract(self, copies: Sequence[Fragment]) -> None:
        """Mark copies as incomplete, so that they are rebuilt; raises `Unavailable`."""
        if self._components is not None:
            for copy in copies:
                database, name = copy_key(copy)
                await self._components.context.state.retract(database, [name])

    def ages(self) -> dict[tuple[str, str], float]:
        """Return the known maximum ages of copies (s), by database and class."""
        if self._components is None:
            return {}
        model, measure = self._model(), self._components.context.watermarks.measured_s
        ages = {
            (model.by_id[database].schema.database, name): measure(route)
            for database in databases_with_view(model)
            for name, route in copied_classes(model, database).items()
        }
        return {of_class: age_s for of_class, age_s in ages.items() if age_s is not None}

    async def overview(self) -> list[dict[str, Any]]:
        model = self._model()
        ids = sorted(databases_with_view(model))
        return [await self._require_components().inspector.describe(model, id_) for id_ in ids]

    async def describe(self, database: str) -> dict[str, Any]:
        """Describe the view of a database; raises `NotFound`."""
        id_ = self._id_of(database)
        return await self._require_components().inspector.describe(self._model(), id_)

    async def start_run(self, database: str, kind: Kind, *, repair: bool = False) -> dict[str, Any]:
        """Start a maintenance run; return the description of the view by then.

        Raises:
            NotFound: The database has no view.
            Conflict: Another run is in progress, or no views are maintained.
        """
        id_ = self._id_of(database)
        await self._require_components().maintenance.start(id_, kind, repair=repair)
        return await self.describe(database)

    def _id_of(self, database: str) -> str:
        route = self._model().databases.get(database)
        if route is None or not copied_classes(self._model(), route.id):
            raise NotFound(f"There is no database {database} with a view.")
        return route.id

    def _require_components(self) -> _Components:
        if self._components is None:
            raise Conflict("Without a coordination Redis no view is maintained.")
        return self._components


class _Components:
    def __init__(self, context: ViewContext, events: ViolationLog, observe: Observer) -> None:
        copier = Copier(context.calls)
        audit = Audit(copier, EarliestTime(context.calls.systems, context.clock))
        self.context = context
        self.inspector = _ViewInspector(context)
        self.maintenance = MaintenanceRuns(context, copier, audit)
        self.materialisers = Materialisers(context, copier)
        self.staleness = StalenessMonitor(context, events, observe)
