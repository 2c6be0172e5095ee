"""The description of a view for operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mediator.base.clock import Clock, StabilityTimer
from mediator.changes.feed import Feed, PositionGone
from mediator.changes.partitions import PARTITIONS
from mediator.materialisation.maintenance import with_interruption
from mediator.materialisation.materialisers import copied_classes
from mediator.materialisation.state import CopyState, PartitionState, ViewState
from mediator.materialisation.watermarks import Watermarks, copy_key
from mediator.routing.model import ClassRoute, RoutingModel

__all__ = ["ViewInspector"]

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
