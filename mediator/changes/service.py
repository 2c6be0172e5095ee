"""The change feed in one replica: relays, subscriptions, registration as a writer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from mediator.base.clock import Clock
from mediator.base.errors import MediatorError
from mediator.base.lease import Leasing
from mediator.base.observation import Observer
from mediator.base.periodic_tasks import PeriodicTask
from mediator.changes.feed import Feed
from mediator.changes.log_relays import LogRelays
from mediator.changes.pending_relays import PendingRelays
from mediator.changes.routes import RelayContext, SystemRoutes
from mediator.changes.subscriptions import Subscriptions
from mediator.changes.ticks import TickTimes
from mediator.changes.writers import RENEW_S, Writers
from mediator.routing.model import DatabaseRoute, RoutingModel
from mediator.stores.port import StoreError
from mediator.stores.systems import Systems

__all__ = ["ChangeService"]


class ChangeService:
    """The relays, the subscriptions, and measurements of them.

    `model` returns the current routing model, `refresh` looks for a newer one. `feed`: the feeds,
    the leases, and this replica's registration as a writer; without them changes are dropped.
    """

    def __init__(
        self,
        systems: Systems,
        model: Callable[[], RoutingModel],
        refresh: Callable[[], Awaitable[object]],
        feed: tuple[Feed, Leasing, Writers] | None,
        replica: str,
        observe: Observer,
        clock: Clock,
    ) -> None:
        def routes(system: str) -> SystemRoutes:
            return SystemRoutes(system, model, refresh)

        context = RelayContext(systems, routes, replica, observe, clock)
        shared, leases, writers = feed or (None, None, None)
        self._model = model
        self._feed = shared
        self._writers = writers
        self.logs = LogRelays(context, shared, leases) if shared and leases else None
        self._pending = PendingRelays(context, (shared, writers) if shared and writers else None)
        self._clock, self._times = clock, TickTimes(clock)
        self._relayed: dict[str, Mapping[str, int]] = {}
        self.subscriptions = Subscriptions(shared) if shared else None

    def periodic_tasks(self) -> list[PeriodicTask]:
        tasks = [PeriodicTask("relay changes of records", 0.25, self._pending.run)]
        if self._writers is not None:
            renew = self._writers.renew
            tasks.append(PeriodicTask("measure lag of feeds", 1.0, self.measure))
            tasks.append(PeriodicTask("renew registration of writer", RENEW_S, renew))
        return tasks

    async def register(self) -> None:
        """Register as a writer, so that the first writes need not wait for the periodic tasks."""
        with suppress(MediatorError, StoreError):  # the periodic tasks try again
            if self._writers is not None:
                await self._writers.renew()
                await self._pending.run()

    def relaying_tasks(self) -> list[PeriodicTask]:
        if self.logs is None:
            return []
        return [
            PeriodicTask("reconcile relays of logs", 1.0, self.logs.reconcile),
            PeriodicTask("trim feeds", 5.0, self.trim),
        ]

    async def close(self) -> None:
        if self.subscriptions is not None:
            await self.subscriptions.close_all()
        if self.logs is not None:
            await self.logs.close()
        try:
            await self._pending.close()
        except (MediatorError, StoreError):
            return  # other replicas relay the rest

    async def measure(self) -> None:
        """Measure how far the feeds have progressed."""
        feed = self._feed
        if feed is None:
            return
        requested_at = self._clock.monotonic()
        self._times.note(await feed.tick(), requested_at)
        routes = self._model().by_id
        self._relayed = {id_: until for id_, until in self._relayed.items() if id_ in routes}
        for id_, route in routes.items():
            published = await feed.relayed_until(id_)
            self._relayed[id_] = _latest(route, self._relayed.get(id_, {}), published)

    def lags(self) -> dict[tuple[str, str], float]:
        """Return the seconds for which feeds may lack changes, by database and system.

        Lags grow while the feeds cannot be read or do not report a system.
        """
        return {
            (name, system): lag_s
            for name, route in self._model().databases.items()
            for system, until_tick in self._relayed.get(route.id, {}).items()
            if (lag_s := self._times.age_s(until_tick)) is not None
        }

    async def trim(self) -> None:
        if self._feed is not None:
            for database_id in self._model().by_id:
                await self._feed.trim(database_id)


def _latest(
    database: DatabaseRoute, former: Mapping[str, int], published: Mapping[str, int]
) -> Mapping[str, int]:
    """Return the last known tick of each system that a database has.

    A system keeps its last tick while its writers are uncertain, or while one of them has
    registered but not relayed yet (a number below every tick).
    """
    systems = {
        fragment.system for route in database.classes.values() for fragment in route.fragments
    }
    ticks = {**former, **{system: tick for system, tick in published.items() if tick > 0}}
    return {system: tick for system, tick in ticks.items() if system in systems}
