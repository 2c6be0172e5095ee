"""What operators see of a view."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mediator.base.clock import Clock, StabilityTimer
from mediator.changes.feed import Feed, PositionGone
from mediator.changes.partitions import PARTITIONS
from mediator.materialisation.state import CopyState, PartitionState, ViewState
from mediator.materialisation.upkeep import is_over
from mediator.materialisation.views import copied_classes
from mediator.materialisation.watermarks import Watermarks, place_of
from mediator.routing.model import ClassRoute, RoutingModel

__all__ = ["View"]

MOST_WAITING: Final = 1_000
"""Changes that are counted as waiting, at most."""


class View:
    """Shows what is known of views, on whichever replica.

    Args:
        feed: The feeds.
        state: What is known of the copies.
        watermarks: Knows how old they are.
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
        asked_at = self._clock.monotonic()
        told = await self._state.told(database)
        known = [await self._state.load(database, number) for number in range(PARTITIONS)]
        routes, schema = copied_classes(model, database), model.by_id[database].schema
        return {
            "database": schema.database,
            "staleness_s": schema.materialised_view.staleness_s,
            "classes": {n: self._class(route, known, told) for n, route in routes.items()},
            "partitions": [
                await self._partition(database, number, known[number], told)
                for number in range(PARTITIONS)
            ],
            "run": self._run(database, told["run"], asked_at) if "run" in told else None,
        }

    def _run(self, database: str, run: dict[str, Any], asked_at: float) -> dict[str, Any]:
        return is_over(run, self._runs.look(database, run, asked_at))

    async def _partition(
        self, database: str, number: int, known: PartitionState, told: Mapping[str, Any]
    ) -> dict[str, Any]:
        figures = told.get(f"partition/{number}", {})
        return {
            "partition": number,
            "waiting": await self._waiting(database, number, known),
            **{name: figures.get(name) for name in ("replica", "rounds", "changes", "error")},
        }

    async def _waiting(self, database: str, number: int, known: PartitionState) -> int | None:
        """Count the changes that the materialiser has not dealt with yet."""
        if known.cursor is None:
            return None
        _, _, after = known.cursor.partition("/")
        try:
            return len(await self._feed.events(database, number, after, MOST_WAITING))
        except PositionGone:
            return None

    def _class(
        self, route: ClassRoute, known: list[PartitionState], told: Mapping[str, Any]
    ) -> dict[str, Any]:
        assert route.copy is not None
        _, copy = place_of(route.copy)
        parts = [
            {"partition": number, **self._part(each.copies.get(copy))}
            | _work(route.schema.name, copy, told.get(f"partition/{number}", {}))
            for number, each in enumerate(known)
        ]
        ages = [part["age_s"] for part in parts]
        return {
            "system": route.copy.system,
            "age_s": None if None in ages else max(ages),
            "partitions": parts,
        }

    def _part(self, state: CopyState | None) -> dict[str, Any]:
        if state is None:
            return {"state": "waiting", "age_s": None, "stuck": []}
        until = state.until_tick
        return {
            "state": "building" if state.build else "stuck" if state.stuck else "complete",
            "age_s": None if until is None else self._age_s(until),
            "stuck": list(state.stuck),
        }


def _work(class_name: str, copy: str, figures: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "progress": figures.get("builds", {}).get(copy),
        "dirty": figures.get("dirty", {}).get(class_name, 0),
        "written": figures.get("written", {}).get(class_name, 0),
        "forgotten": figures.get("forgotten", {}).get(class_name, 0),
    }
