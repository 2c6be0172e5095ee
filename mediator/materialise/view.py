"""What operators see of a primary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mediator.changes.feed import Feed, PositionGone
from mediator.changes.partitions import PARTITIONS
from mediator.materialise.primaries import copied_classes
from mediator.materialise.state import CopyState, PartitionState, PrimaryState
from mediator.materialise.upkeep import is_over
from mediator.materialise.watermarks import place_of
from mediator.placement.routing import ClassRoute, RoutingModel

__all__ = ["View"]

MOST_WAITING: Final = 1_000
"""Changes that are counted as waiting, at most."""

_US: Final = 1_000_000


class View:
    """Shows what is known of primaries, on whichever replica.

    Args:
        feed: The feeds.
        state: What is known of the copies.
    """

    def __init__(self, feed: Feed, state: PrimaryState) -> None:
        self._feed = feed
        self._state = state

    async def describe(self, model: RoutingModel, database: str) -> dict[str, Any]:
        """Describe the primary of the database of an id.

        Raises:
            Unavailable: The coordination Redis does not answer.
        """
        told = await self._state.told(database)
        now_us = await self._feed.now_us()
        known = [await self._state.load(database, number) for number in range(PARTITIONS)]
        routes, schema = copied_classes(model, database), model.by_id[database].schema
        return {
            "database": schema.database,
            "staleness_s": schema.primary.staleness_s,
            "classes": {n: _class(route, known, told, now_us) for n, route in routes.items()},
            "partitions": [
                await self._partition(database, number, known[number], told)
                for number in range(PARTITIONS)
            ],
            "run": is_over(told["run"], now_us) if "run" in told else None,
        }

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
    route: ClassRoute, known: list[PartitionState], told: Mapping[str, Any], now_us: int
) -> dict[str, Any]:
    assert route.copy is not None
    _, copy = place_of(route.copy)
    parts = [
        {"partition": number, **_part(each.copies.get(copy), now_us)}
        | _work(route.schema.name, copy, told.get(f"partition/{number}", {}))
        for number, each in enumerate(known)
    ]
    ages = [part["age_s"] for part in parts]
    return {
        "primary": route.copy.system,
        "age_s": None if None in ages else max(ages),
        "partitions": parts,
    }


def _part(state: CopyState | None, now_us: int) -> dict[str, Any]:
    if state is None:
        return {"state": "waiting", "age_s": None, "stuck": []}
    until_us = state.until_us
    name = "building" if state.build else "stuck" if state.stuck else "complete"
    return {
        "state": name,
        "age_s": None if until_us is None else max(0, now_us - until_us) / _US,
        "stuck": list(state.stuck),
    }


def _work(class_name: str, copy: str, figures: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "progress": figures.get("builds", {}).get(copy),
        "dirty": figures.get("dirty", {}).get(class_name, 0),
        "written": figures.get("written", {}).get(class_name, 0),
        "forgotten": figures.get("forgotten", {}).get(class_name, 0),
    }
