"""Monitoring of how old the views are: a violation is recorded before a bound is reached.

No read is ever answered beyond the bound: the systems are read instead. But the view is there to
spare them that, so operators are warned in time, as of any violation of an annotation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, Literal, Protocol

from mediator.base.clock import Clock
from mediator.base.errors import Unavailable
from mediator.base.lease import Leasing
from mediator.base.observation import Observer, ViolationDetected
from mediator.materialisation.materialisers import copied_classes, databases_with_view
from mediator.materialisation.state import Watermarks
from mediator.routing.model import ClassRoute, RoutingModel

__all__ = ["METRIC", "StalenessMonitor", "ViolationLog"]

METRIC: Final = "staleness"
MAX_SHARE: Final = 0.8
"""Share of the bound above which a violation begins."""

RECOVERED_SHARE: Final = 0.5
"""Share of the bound below which it ends."""

_LEASE_S: Final = 5.0


class ViolationLog(Protocol):
    """Stores violations for operators; see `mediator.catalogue.evaluations.CatalogueEvents`."""

    async def record(self, phase: Literal["began", "ended"], event: ViolationDetected) -> None:
        """Record the beginning or the end of a violation."""


class StalenessMonitor:
    """Monitors the age of every copy; of each database one replica does.

    Args:
        watermarks: Measure the copies' age.
        model: Returns the routing model in force.
        events: Stores violations.
        leases: Leases.
        replica: Name of this replica.
        observe: Called with each event.
        clock: The time.
    """

    def __init__(
        self,
        watermarks: Watermarks,
        model: Callable[[], RoutingModel],
        events: ViolationLog,
        leases: Leasing,
        replica: str,
        observe: Observer,
        clock: Clock,
    ) -> None:
        self._watermarks = watermarks
        self._model = model
        self._events = events
        self._leases = leases
        self._replica = replica
        self._observe = observe
        self._clock = clock
        self._violated: dict[tuple[str, str], float] = {}

    async def check(self) -> None:
        """Check every copy once."""
        model = self._model()
        for database in databases_with_view(model):
            if await self._holds_lease(database):
                bound_s = model.by_id[database].schema.materialised_view.staleness_s
                for route, age_s in self._ages(model, database):
                    await self._check(route, bound_s, age_s)

    def _ages(self, model: RoutingModel, database: str) -> Iterator[tuple[ClassRoute, float]]:
        for route in copied_classes(model, database).values():
            age_s = self._watermarks.measured_s(route)
            if age_s is not None:
                yield route, age_s

    async def _holds_lease(self, database: str) -> bool:
        with suppress(Unavailable):
            return await self._leases.acquire(f"staleness:{database}", self._replica, _LEASE_S)
        return True  # a violation recorded twice is better than none

    async def _check(self, route: ClassRoute, bound_s: float, age_s: float) -> None:
        key, now = (route.anchor.database_id, route.schema.name), self._clock.monotonic()
        since = self._violated.get(key)
        if since is None and age_s > MAX_SHARE * bound_s:
            self._violated[key] = now
            event = _violation(route, bound_s, age_s, 0.0)
            self._observe(event)
            await self._events.record("began", event)
        elif since is not None and age_s < RECOVERED_SHARE * bound_s:
            del self._violated[key]
            await self._events.record("ended", _violation(route, bound_s, age_s, now - since))


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
