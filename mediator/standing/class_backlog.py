"""The backlog of results for classes: batches wait for a slow class, but not for one that is down.

Another holder writes the results (`mediator.standing.class_deliveries`). Only a limited number is
kept, so a burst of results must not outrun it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from mediator.base.clock import Clock
from mediator.base.errors import Invalid
from mediator.changes.feed import PositionGone
from mediator.model.result_position import ResultPosition
from mediator.routing.model import DatabaseRoute
from mediator.standing.context import MustStop
from mediator.standing.delivery import MAX_WAITING
from mediator.standing.query import Destination, StandingQuery
from mediator.standing.result_objects import creation_of
from mediator.standing.results import Delivery, QueryKey, StandingResults

__all__ = ["ClassBacklog"]

_STALLED_S: Final = 5.0
"""Time without progress after which a class counts as down: longer than a new holder takes."""


@dataclass(eq=False)
class ClassBacklog:
    """Tracks how far the results of one database's queries were written to classes."""

    _results: StandingResults
    _route: DatabaseRoute
    _clock: Clock
    _progress: Mapping[str, int] = field(default_factory=dict, init=False)
    _moved_at: float = field(default=float("-inf"), init=False)

    @property
    def has_stalled(self) -> bool:
        """Whether a class is far behind and has taken nothing for some time."""
        return bool(self._progress) and self._clock.monotonic() - self._moved_at >= _STALLED_S

    async def is_long(self, queries: Mapping[str, StandingQuery]) -> bool:
        """Whether batches should wait: a class that takes results is far behind.

        Raises:
            MustStop: A class refuses a result, or did not take results in time.
        """
        destinations = {
            id_: query.into
            for id_, query in queries.items()
            if query.into is not None and query.into.target.kind == "class"
        }
        if not destinations:
            return False
        deliveries = await self._results.deliveries(self._route.id)
        behind: dict[str, int] = {}
        for id_, destination in destinations.items():
            delivery = deliveries.get(id_, Delivery())
            if await self._waiting(id_, destination, delivery) > MAX_WAITING:
                behind[id_] = delivery.done
        if behind != self._progress:
            self._progress, self._moved_at = behind, self._clock.monotonic()
        return bool(behind) and not self.has_stalled

    async def _waiting(self, query: str, into: Destination, delivery: Delivery) -> int:
        """Return how many results a class has not taken."""
        key, name = QueryKey(self._route.id, query), into.target.name
        try:
            next_results = await self._results.results(key, ResultPosition(delivery.done), 1)
        except PositionGone:
            detail = f"The class {name} takes results too slowly, or did not for too long."
            raise MustStop([query], detail) from None
        if delivery.is_refused:
            reason = (
                "the class is gone, or another result had its number, as when the coordination"
                " Redis has returned to an older state"
            )
            try:
                for result in next_results:
                    creation_of(self._route, key, into, result)
            except Invalid as error:
                reason = "; ".join(
                    f"{location.pointer} {location.detail}" for location in error.locations
                )
            detail = f"The class {name} does not take the result {delivery.done + 1}: {reason}."
            raise MustStop([query], detail)
        return (await self._results.last_result(key)).number - delivery.done
