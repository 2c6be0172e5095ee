"""What classes have not taken yet: batches wait for one that is slow, but not for one that is down.

Results are written by another holder (`mediator.standing.class_deliveries`). Only a limited number
is kept, so a burst of results must not run away from it.
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
from mediator.standing.delivery import MOST_WAITING
from mediator.standing.query import Destination, StandingQuery
from mediator.standing.result_objects import creation_of
from mediator.standing.results import Delivery, QueryKey, StandingResults

__all__ = ["ClassBacklog"]

_STALLED_S: Final = 5.0
"""After which a class that takes nothing counts as down: longer than a new holder takes."""


@dataclass(eq=False)
class ClassBacklog:
    """Follows how far the results of the queries of one database were written to classes."""

    _results: StandingResults
    _route: DatabaseRoute
    _clock: Clock
    _done: Mapping[str, int] = field(default_factory=dict, init=False)
    _moved_at: float = field(default=float("-inf"), init=False)

    @property
    def has_stalled(self) -> bool:
        """Whether a class is far behind, and has taken nothing for some time."""
        return bool(self._done) and self._clock.monotonic() - self._moved_at >= _STALLED_S

    async def is_long(self, queries: Mapping[str, StandingQuery]) -> bool:
        """Whether batches should wait: a class that takes results is far behind.

        Raises:
            MustStop: A class refuses a result, or did not take results in time.
        """
        into = {
            id_: each.into
            for id_, each in queries.items()
            if each.into is not None and each.into.target.kind == "class"
        }
        if not into:
            return False
        deliveries = await self._results.deliveries(self._route.id)
        behind: dict[str, int] = {}
        for id_, each in into.items():
            at = deliveries.get(id_, Delivery())
            if await self._waiting(id_, each, at) > MOST_WAITING:
                behind[id_] = at.done
        if behind != self._done:
            self._done, self._moved_at = behind, self._clock.monotonic()
        return bool(behind) and not self.has_stalled

    async def _waiting(self, query: str, into: Destination, at: Delivery) -> int:
        """Return how many results a class has not taken."""
        key, name = QueryKey(self._route.id, query), into.target.name
        try:
            following = await self._results.results(key, ResultPosition(at.done), 1)
        except PositionGone:
            detail = f"The class {name} takes results too slowly, or did not for too long."
            raise MustStop([query], detail) from None
        if at.is_refused:
            reason = (
                "the class is gone, or another result had its number, as when the coordination"
                " Redis has returned to an older state"
            )
            try:
                for each in following:
                    creation_of(self._route, key, into, each)
            except Invalid as error:
                reason = "; ".join(f"{at.pointer} {at.detail}" for at in error.locations)
            detail = f"The class {name} does not take the result {at.done + 1}: {reason}."
            raise MustStop([query], detail)
        return (await self._results.last_result(key)).number - at.done
