"""Monitoring of the staleness of views: a violation is recorded before a bound is reached.

Reads are never answered beyond the bound: the systems are read instead. Since the view should spare
them that load, operators are warned in time, as of any violation of an annotation.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final, Literal, Protocol

from mediator.base.errors import Unavailable
from mediator.base.observation import Observer, ViolationDetected
from mediator.materialisation.context import ViewContext, copied_classes, databases_with_view
from mediator.routing.model import ClassRoute

__all__ = ["METRIC", "StalenessMonitor", "ViolationLog"]

METRIC: Final = "staleness"
MAX_SHARE: Final = 0.8
"""Share of the bound above which a violation starts."""

RECOVERED_SHARE: Final = 0.5
"""Share of the bound below which a violation ends."""

_LEASE_S: Final = 5.0


class ViolationLog(Protocol):
    """Stores violations for operators; see `mediator.catalogue.evaluations.CatalogueEvents`."""

    async def record(self, phase: Literal["began", "ended"], event: ViolationDetected) -> None:
        """Record the start or the end of a violation."""


class StalenessMonitor:
    """Monitors the age of every copy; each database is monitored by one replica."""

    def __init__(self, context: ViewContext, events: ViolationLog, observe: Observer) -> None:
        self._context = context
        self._events = events
        self._observe = observe
        self._violated: dict[tuple[str, str], float] = {}

    async def check(self) -> None:
        model = self._context.model()
        for database in databases_with_view(model):
            if await self._holds_lease(database):
                bound_s = model.by_id[database].schema.materialised_view.staleness_s
                for route in copied_classes(model, database).values():
                    age_s = self._context.watermarks.measured_s(route)
                    if age_s is not None:
                        await self._check(route, bound_s, age_s)

    async def _holds_lease(self, database: str) -> bool:
        name, replica = f"staleness:{database}", self._context.replica
        with suppress(Unavailable):
            return await self._context.leases.acquire(name, replica, _LEASE_S)
        return True  # recording a violation twice is better than not at all

    async def _check(self, route: ClassRoute, bound_s: float, age_s: float) -> None:
        now = self._context.clock.monotonic()
        key = (route.anchor.database_id, route.schema.name)
        since = self._violated.get(key)
        if since is None and age_s > MAX_SHARE * bound_s:
            event = _violation(route, bound_s, age_s, 0.0)
            # Recorded first, here and below: a failure is retried in a second.
            await self._events.record("began", event)
            self._violated[key] = now
            self._observe(event)
        elif since is not None and age_s < RECOVERED_SHARE * bound_s:
            await self._events.record("ended", _violation(route, bound_s, age_s, now - since))
            del self._violated[key]


def _violation(
    route: ClassRoute, bound_s: float, age_s: float, duration_s: float
) -> ViolationDetected:
    assert route.copy is not None
    return ViolationDetected(
        database=route.anchor.database,
        node=route.schema.name,
        metric=METRIC,
        system=route.copy.system,
        measured=age_s,
        score=bound_s / max(age_s, 1e-6),
        below=1 / MAX_SHARE,
        duration_s=duration_s,
    )
