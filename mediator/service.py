"""The mediator put together: both planes, and what goes on in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias
from uuid import uuid4

from mediator.access.tenancy import Tenancy
from mediator.archive.service import Archive
from mediator.base.clock import Clock, SystemClock
from mediator.base.observation import (
    ClockSkewMeasured,
    FilteredObserver,
    Observation,
    Observer,
    StoreCallFinished,
    broadcast,
)
from mediator.base.periodic_tasks import PeriodicTask, Scheduler
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.dropped_databases import DroppedDatabases
from mediator.catalogue.events import CatalogueEvents
from mediator.catalogue.presence import Presence
from mediator.catalogue.proposals import CatalogueProposals
from mediator.catalogue.registrations import CatalogueSystems
from mediator.catalogue.replicas import CatalogueReplicas
from mediator.catalogue.run_queue import RunQueue
from mediator.catalogue.runs import CatalogueRuns
from mediator.catalogue.schemas import CatalogueSchemas
from mediator.catalogue.tenants import CatalogueTenants
from mediator.catalogue.transaction_log import CatalogueTransactions
from mediator.catalogue.workers import CatalogueWorkers
from mediator.changes.feed import Feed
from mediator.changes.service import ChangeService
from mediator.changes.writers import LeasedAcknowledging, Writers
from mediator.control.clearing import Clearing
from mediator.control.evaluation import Hysteresis, PlacementEvaluation
from mediator.control.follower import Follower
from mediator.control.membership import Membership
from mediator.control.plane import Control
from mediator.control.port import ControlPlane, SystemRegistration
from mediator.control.registry import Registry
from mediator.control.schemas import Schemas
from mediator.coordination.connecting import Coordination
from mediator.coordination.feed import Retention
from mediator.coordination.leases import Leases
from mediator.coordination.metrics_exchange import MetricsExchange, NoExchange, RedisExchange
from mediator.data_plane.executor import Executor
from mediator.integrity.check import Integrity
from mediator.materialisation.context import ViewContext
from mediator.materialisation.service import ViewService
from mediator.materialisation.state import Watermarks
from mediator.model.guard import NullGuard, WriteGuard
from mediator.operations.calls import StoreCalls
from mediator.operations.expiry import Sweep
from mediator.operations.orphans import OrphanResolver
from mediator.placement.metrics_registry import MetricsRegistry
from mediator.query.budget import Limits
from mediator.routing.model import RoutingModel
from mediator.scaling.advisor import SAMPLED_EVERY_S, Advisor
from mediator.scaling.energy import Energy
from mediator.stores.port import Reapable, StoreError
from mediator.stores.systems import EarliestTime, StoreFactory, Systems
from mediator.transactions.coordinator import Transactions

__all__ = ["Mediator", "MediatorOptions", "Relaying"]

REAPED_AT_ONCE = 1_000
EVALUATION_SHARE = 0.2
"""Share of the event loop for scoring, which is arithmetic over every schema."""

Relaying: TypeAlias = Literal["here", "elsewhere", "only"]
"""Who relays changes to the feed and to views: this mediator, another, or this one and nothing
else. Changes that wait in records are always relayed by the process that wrote them."""


DecorateControl: TypeAlias = Callable[
    [ControlPlane, Callable[[str, str], Awaitable[str]]], ControlPlane
]


@dataclass(frozen=True, slots=True)
class MediatorOptions:
    """What a mediator is built from.

    Attributes:
        catalogue_url: The PostgreSQL that holds durable metadata.
        coordination_url: The Redis that holds the change feed, and through which replicas share
            metrics; without it there is no feed.
        systems: Systems registered at the start.
        proposal_margin: By what ratio another system must score higher to be proposed.
        proposal_dwell_s: For how many seconds it must do so.
        query_limits: What a query may cost.
        retention: What the change feed keeps.
        guard: The guard of caches, called for every write.
        relaying: Who relays changes to the feed and to views.
        clock: The time, for everything but the stores.
        alone: Whether there must be no other replica, as it keeps state that others would need.
        migrate: Whether the tables of the catalogue are upgraded at the start.
        energy: What the operator states of powers.
        decorate_control: Returns the control plane that everybody uses, around the one given; the
            second argument is `Mediator.secret`.
    """

    catalogue_url: str
    coordination_url: str | None = None
    systems: Sequence[SystemRegistration] = ()
    proposal_margin: float = 0.2
    proposal_dwell_s: float = 60.0
    query_limits: Limits = field(default_factory=Limits)
    retention: Retention = field(default_factory=Retention)
    guard: WriteGuard = field(default_factory=NullGuard)
    relaying: Relaying = "here"
    clock: Clock = field(default_factory=SystemClock)
    alone: bool = False
    migrate: bool = True
    energy: Energy = field(default_factory=Energy)
    decorate_control: DecorateControl = lambda control, _: control


class Mediator:
    """Both planes of one replica.

    Args:
        options: What to build.
        factory: Creates a store of each kind.
        observers: Called with every event.
    """

    def __init__(
        self, options: MediatorOptions, factory: StoreFactory, observers: Sequence[Observer]
    ) -> None:
        self._options = options
        self._clock = options.clock
        self._replica = uuid4().hex
        self._metrics = MetricsRegistry(self._clock)
        own = [FilteredObserver(self._metrics.observe, MetricsRegistry.EVENTS)]
        if options.relaying != "elsewhere":  # else there is no relay here to wake
            own.append(FilteredObserver(self._on_event, {StoreCallFinished}))
        self._observe = broadcast(*own, *observers)
        self._exchange = _exchange(options.coordination_url)
        self._coordination = _coordination(options)
        self._catalogue = Catalogue(options.catalogue_url, migrate=options.migrate)
        self.runs = CatalogueRuns(self._catalogue)
        self.queue = RunQueue(self._catalogue)
        self.workers = CatalogueWorkers(self._catalogue)
        self.tenancy = Tenancy(CatalogueTenants(self._catalogue), self._clock)
        self._presence = Presence(self._catalogue, alone=options.alone)
        self._registrations = CatalogueSystems(self._catalogue)
        self._systems = Systems()
        self._registry = self._register(factory)
        events = CatalogueEvents(self._catalogue)
        calls = StoreCalls(self._systems, options.guard, self._clock)
        self._sweep = Sweep(self._systems, calls.write_guarded)
        self._watermarks = Watermarks(self._clock)
        self.data = self._operate(calls)
        self.orphan_resolver = OrphanResolver(calls, self._model)
        self.transactions = self._transact(calls)
        self.views = self._materialise(calls, events)
        self.changes = self._follow(calls)
        follower = Follower(CatalogueSchemas(self._catalogue), self.data, calls)
        replicas = CatalogueReplicas(self._catalogue)
        self._membership = Membership(
            replicas, self._replica, follower.in_force, calls, self._clock
        )
        self._clearing = Clearing(DroppedDatabases(self._catalogue), self._systems, self._feed())
        self._schemas = self._place(follower)
        self._advisor = Advisor(
            self._registry.candidates, self._metrics.offered, self._clock, energy=options.energy
        )
        evaluation = self._evaluate(events)
        self.control = options.decorate_control(self._govern(evaluation), self.secret)
        self.archive = self._keep()
        self.integrity = Integrity(self.data, self._feed(), self._clock)
        self._scheduler = Scheduler(self._periodic_tasks(evaluation))

    def _register(self, factory: StoreFactory) -> Registry:
        return Registry(
            self._systems, self._registrations, factory, self._metrics, self._observe, self._clock
        )

    def _operate(self, calls: StoreCalls) -> Executor:
        limits = self._options.query_limits
        return Executor(calls, self._watermarks, self._refresh, limits, self._clock, self._observe)

    def _transact(self, calls: StoreCalls) -> Transactions:
        log = CatalogueTransactions(self._catalogue)
        clock = EarliestTime(self._systems, self._clock)
        transactions = Transactions(self.data, calls, log, clock, self._observe)
        calls.intents, self.data.joint = transactions.resolver, transactions.joint
        return transactions

    def _materialise(self, calls: StoreCalls, events: CatalogueEvents) -> ViewService:
        context, shared = None, self._coordination
        if shared is not None:
            context = ViewContext(
                shared.feed,
                shared.view_state,
                shared.leases,
                calls,
                self._watermarks,
                self._model,
                self._replica,
                self._clock,
            )
        return ViewService(self._model, context, events, self._observe)

    def _follow(self, calls: StoreCalls) -> ChangeService:
        shared, followed = self._coordination, None
        if shared is not None:
            writers = Writers(shared.writers, self._replica, self._clock)
            calls.acknowledging = LeasedAcknowledging(writers, self._model)
            followed = (shared.feed, shared.leases, writers)
        return ChangeService(
            self._systems,
            self._model,
            self._refresh,
            followed,
            self._replica,
            self._observe,
            self._clock,
        )

    def _place(self, follower: Follower) -> Schemas:
        return Schemas(
            CatalogueSchemas(self._catalogue),
            self._registry,
            self._systems,
            self.data,
            follower,
            self._membership,
            self.views,
            self._clearing,
            self._observe,
        )

    def _evaluate(self, events: CatalogueEvents) -> PlacementEvaluation:
        hysteresis = Hysteresis(self._options.proposal_margin, self._options.proposal_dwell_s)
        proposals = CatalogueProposals(self._catalogue)
        return PlacementEvaluation(
            self._registry, self.data, events, proposals, hysteresis, self._observe, self._clock
        )

    def _govern(self, evaluation: PlacementEvaluation) -> Control:
        return Control(
            self._catalogue,
            self._registry,
            self._systems,
            self._schemas,
            evaluation,
            self._advisor,
            self.data,
        )

    def _keep(self) -> Archive:
        guard, feed = self._options.guard, self._feed()
        return Archive(self._catalogue, self.data, self.control, feed, guard, self._clock)

    def _feed(self) -> Feed | None:
        return self._coordination.feed if self._coordination else None

    def _model(self) -> RoutingModel:
        return self.data.model

    def _periodic_tasks(self, evaluation: PlacementEvaluation) -> list[PeriodicTask]:
        periodic_tasks = [
            PeriodicTask("open systems", 2.0, self._registry.reconnect),
            PeriodicTask("read clocks of systems", 1.0, self._read_clocks),
        ]
        if self._options.relaying == "only":
            periodic_tasks.append(PeriodicTask("refresh routing model", 1.0, self._schemas.refresh))
        if self._options.relaying != "elsewhere":
            periodic_tasks += [*self.changes.relaying_tasks(), *self.views.relaying_tasks()]
        if self._options.relaying != "only":
            periodic_tasks += self._serving_tasks(evaluation)
        return periodic_tasks

    def _serving_tasks(self, evaluation: PlacementEvaluation) -> list[PeriodicTask]:
        evaluate = partial(evaluation.evaluate, EVALUATION_SHARE)
        return [
            PeriodicTask("renew presence", 2.0, self._presence.hold),
            PeriodicTask("confirm routing model", 1.0, self._membership.renew),
            PeriodicTask("recover transactions", 1.0, self._recover),
            PeriodicTask("share metrics", 5.0, self._share_metrics),
            PeriodicTask("sample utilisation", SAMPLED_EVERY_S, self._advisor.sample),
            PeriodicTask("evaluate placements", 5.0, evaluate),
            PeriodicTask("reap", 60.0, self._reap),
            PeriodicTask("sweep expired objects", 5.0, self._sweep_expired),
            PeriodicTask("clear dropped databases", 60.0, self._clearing.run),
            *self.changes.periodic_tasks(),
            *self.views.periodic_tasks(),
        ]

    async def open(self) -> None:
        """Open the catalogue and the systems, and load the routing model: enough to use data.

        Raises:
            CatalogueMismatch: The tables of the catalogue are not those of this code.
            Unavailable: The catalogue does not answer.
        """
        await self._catalogue.open()
        await self._registry.restore(self._options.systems)
        await self._schemas.refresh()

    async def start(self) -> None:
        """Open everything, and start the periodic tasks.

        Raises:
            CatalogueMismatch: The tables of the catalogue are not those of this code.
            Unavailable: The catalogue does not answer.
            NotAlone: There is another replica, and one of the two must be alone.
        """
        await self.open()
        if self._options.relaying != "only":
            await self._presence.hold()
            await self._membership.renew()
            await self.changes.register()
            await self.transactions.resolver.recover()
        self._scheduler.start()

    async def stop(self) -> None:
        """Stop the periodic tasks and release every connection."""
        await self._scheduler.stop()
        await self.transactions.resolver.close()
        await self.views.close()
        await self.changes.close()
        if self._coordination is not None:
            await self._coordination.close()
        await self._membership.close()
        await self._presence.close()
        await asyncio.gather(
            self._registry.close(), self._catalogue.close(), self._exchange.close()
        )

    @property
    def leases(self) -> Leases | None:
        """The leases among replicas; None without a coordination Redis."""
        return self._coordination.leases if self._coordination else None

    async def reconfigure(self, systems: Sequence[SystemRegistration]) -> list[str]:
        """Apply new settings of systems; see `Registry.reconfigure`."""
        return await self._registry.reconfigure(systems)

    async def secret(self, name: str, proposal: str) -> str:
        """Return a secret that all replicas share."""
        return await self._registrations.secret(name, proposal)

    async def count_objects(self, database: str) -> int:
        """Count the objects of a database; raises `Unavailable`."""
        return await self._schemas.count(database)

    def _on_event(self, event: Observation) -> None:
        self.changes.on_event(event)

    async def _refresh(self) -> None:
        await self._schemas.refresh()

    async def _share_metrics(self) -> None:
        own = {**self._metrics.snapshot(), **self._advisor.shared()}
        await self._exchange.publish(self._replica, own)
        others = await self._exchange.others(self._replica)
        self._metrics.merge(others)
        self._advisor.merge(others)

    async def _recover(self) -> None:
        await self.transactions.resolver.recover()

    async def _reap(self) -> None:
        await self.transactions.log.reap(REAPED_AT_ONCE)
        for guarded in self._systems:
            if isinstance(guarded.store, Reapable):
                await guarded.guarded(partial(guarded.store.reap, REAPED_AT_ONCE))

    async def _read_clocks(self) -> None:
        for guarded in tuple(self._systems):
            with suppress(StoreError):  # it is tried again; what was read last goes on meanwhile
                await guarded.read_clock()
        if self._coordination is not None:
            with suppress(StoreError):
                skew_s = await self._coordination.skew_s()
                self._observe(ClockSkewMeasured("coordination", skew_s))

    async def _sweep_expired(self) -> None:
        await self._sweep.run(self.data.model)


def _coordination(options: MediatorOptions) -> Coordination | None:
    url = options.coordination_url
    return Coordination(url, options.retention) if url else None


def _exchange(url: str | None) -> MetricsExchange:
    return RedisExchange(url) if url else NoExchange()
