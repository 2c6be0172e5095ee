"""Reads from the view, where it is fresh enough."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mediator.base.errors import Unavailable
from mediator.base.observation import Observer, ViewDecision, ViewReadFinished
from mediator.materialisation.state import Watermarks
from mediator.model.operations import Freshness, Get, Outcome
from mediator.operations.calls import StoreCalls
from mediator.operations.merge import merge_records
from mediator.operations.torn_reads import read_objects
from mediator.routing.fragments import plan_read
from mediator.routing.freshness import ReadPreference, bound_of, has_reached, is_for_view
from mediator.routing.model import ClassRoute

__all__ = ["ViewReads"]


@dataclass(frozen=True)
class ViewReads:
    _calls: StoreCalls
    _staleness: Watermarks
    _observe: Observer

    def fresh(
        self,
        route: ClassRoute,
        staleness_s: float,
        preference: ReadPreference,
        id_: str | None = None,
    ) -> Freshness | None:
        """Return the freshness of a class's copies, or of one object's; None: not fresh enough."""
        bound = bound_of(staleness_s, preference)
        measured = self._staleness.measured_s(route, id_)
        return Freshness(bound, measured) if measured is not None and measured <= bound else None

    async def fresh_for_all(
        self, route: ClassRoute, staleness_s: float, preference: ReadPreference
    ) -> Freshness | None:
        """Return the freshness of a class's copies; None if they lack versions the reader saw."""
        freshness = self.fresh(route, staleness_s, preference)
        if freshness is None:
            return self._observe_read(route, "stale", None)
        return self._observe_read(route, await self._decision(route, preference), freshness)

    async def _decision(self, route: ClassRoute, preference: ReadPreference) -> ViewDecision:
        """Decide whether the copies have the versions that the reader has seen."""
        name = route.schema.name
        seen = [id_ for class_name, id_ in preference.at_least or () if class_name == name]
        if route.view is None or not seen:
            return "answered"
        resource = Get(route.anchor.database, name, "")
        try:
            copies = await read_objects(self._calls, route.view, resource, seen)
        except Unavailable:
            return "unavailable"
        current = all(copy and has_reached(copy, preference, name) for copy in copies)
        return "answered" if current else "unseen"

    async def read(
        self, route: ClassRoute, operation: Get, staleness_s: float, preference: ReadPreference
    ) -> Outcome | None:
        """Read an object's copy; None if its systems must be read.

        A missing copy is not conclusive: the object may be younger than the bound.
        """
        view = route.view
        if view is None or not is_for_view(route, operation.fields, preference):
            return None
        # The age is measured first: the copy can only become fresher during the read.
        freshness = self.fresh(route, staleness_s, preference, operation.id)
        if freshness is None:
            self._observe_read(route, "stale", None)
            return None
        decision, outcome = await self._copy(view, operation, preference)
        self._observe_read(route, decision, freshness)
        return replace(outcome, freshness=freshness) if outcome else None

    async def _copy(
        self, view: ClassRoute, operation: Get, preference: ReadPreference
    ) -> tuple[ViewDecision, Outcome | None]:
        try:
            records = await self._calls.read(plan_read(view, operation))
        except Unavailable:
            return "unavailable", None
        outcome = merge_records(view, operation, records)
        if outcome is None:
            return "missing", None
        seen = has_reached(outcome, preference, operation.class_name)
        return ("answered", outcome) if seen else ("unseen", None)

    def _observe_read(
        self, route: ClassRoute, decision: ViewDecision, freshness: Freshness | None
    ) -> Freshness | None:
        """Observe the result of a read; return the freshness if it was answered."""
        measured_s = freshness.measured_s if freshness else None
        database, class_name = route.anchor.database, route.schema.name
        self._observe(ViewReadFinished(database, class_name, decision, measured_s))
        return freshness if decision == "answered" else None
