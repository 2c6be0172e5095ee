"""Reads of single objects from the view, where it is fresh enough."""

from __future__ import annotations

from dataclasses import replace

from mediator.base.errors import Unavailable
from mediator.base.observation import Observer, ViewDecision, ViewReadFinished
from mediator.model.operations import Freshness, Get, Outcome
from mediator.operations.calls import StoreCalls
from mediator.operations.merge import merge_records
from mediator.operations.objects import read_objects
from mediator.routing.fragments import plan_read
from mediator.routing.freshness import (
    ReadPreference,
    Staleness,
    bound_of,
    has_reached,
    is_for_view,
)
from mediator.routing.model import ClassRoute

__all__ = ["ViewReads"]


class ViewReads:
    """Tries reads at the view.

    Args:
        calls: Sends store calls.
        staleness: Knows how old the copies may be.
        observe: Told what became of every try.
    """

    def __init__(self, calls: StoreCalls, staleness: Staleness, observe: Observer) -> None:
        self._calls = calls
        self._staleness = staleness
        self._observe = observe

    def fresh(
        self,
        route: ClassRoute,
        staleness_s: float,
        preference: ReadPreference,
        id_: str | None = None,
    ) -> Freshness | None:
        """Say how fresh the copies of a class, or of one object, are; None: not fresh enough."""
        bound = bound_of(staleness_s, preference)
        measured = self._staleness.measured_s(route, id_)
        return Freshness(bound, measured) if measured is not None and measured <= bound else None

    async def fresh_for_all(
        self, route: ClassRoute, staleness_s: float, preference: ReadPreference
    ) -> Freshness | None:
        """Say how fresh the copies of a class are; None if they lack what the reader has seen."""
        freshness = self.fresh(route, staleness_s, preference)
        if freshness is None:
            return self._tell(route, "stale", None)
        current = await self._have_what_was_seen(route, preference)
        return self._tell(route, "answered" if current else "unseen", freshness)

    async def _have_what_was_seen(self, route: ClassRoute, preference: ReadPreference) -> bool:
        seen = [id_ for name, id_ in preference.at_least or () if name == route.schema.name]
        if route.view is None or not seen:
            return True
        resource = Get(route.anchor.database, route.schema.name, "")
        copies = await read_objects(self._calls, route.view, resource, seen)
        return all(copy and has_reached(copy, preference, route.schema.name) for copy in copies)

    async def read(
        self, route: ClassRoute, operation: Get, staleness_s: float, preference: ReadPreference
    ) -> Outcome | None:
        """Read an object's copy; None if its systems have to be asked.

        A copy that is not there says nothing: the object may be younger than the bound.
        """
        view = route.view
        if view is None or not is_for_view(route, operation.fields, preference):
            return None
        # The age is taken first: while the copy is read it can only become fresher.
        freshness = self.fresh(route, staleness_s, preference, operation.id)
        if freshness is None:
            self._tell(route, "stale", None)
            return None
        decision, outcome = await self._copy(view, operation, preference)
        self._tell(route, decision, freshness)
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

    def _tell(
        self, route: ClassRoute, decision: ViewDecision, freshness: Freshness | None
    ) -> Freshness | None:
        """Tell what became of a try; return how fresh the answer is, if there is one."""
        measured_s = freshness.measured_s if freshness else None
        told = ViewReadFinished(route.anchor.database, route.schema.name, decision, measured_s)
        self._observe(told)
        return freshness if decision == "answered" else None
