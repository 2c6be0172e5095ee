"""The mediator: both planes and the background tasks of one replica."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import uuid4

from mediator.archive.backup import Installation
from mediator.base.errors import MediatorError, Unavailable
from mediator.base.observation import (
    ClockSkewMeasured,
    FilteredObserver,
    Observation,
    Observer,
    StoreCallFinished,
    broadcast,
)
from mediator.base.periodic_tasks import PeriodicTask, Scheduler
from mediator.catalogue.admission import CatalogueAdmission
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.evaluations import CatalogueEvents, CatalogueProposals
from mediator.catalogue.held_runs import HeldRuns
from mediator.catalogue.registrations import CatalogueSystems
from mediator.catalogue.replicas import CatalogueReplicas, Presence
from mediator.catalogue.run_queue import CatalogueWorkers, RunQueue
from mediator.catalogue.runs import CatalogueRuns
from mediator.catalogue.schemas import CatalogueSchemas
from mediator.catalogue.tenants import CatalogueTenants
from mediator.catalogue.transaction_log import CatalogueTransactions
from mediator.changes.naming import naming_by
from mediator.changes.service import ChangeService
from mediator.changes.writers import LeasedAcknowledging, Writers
from mediator.control.admission import AdmissionControl
from mediator.control.backfill import Backfill
from mediator.control.claim_sweep import ClaimSweep
from mediator.control.clearing import Clearing
from mediator.control.constraint_check import ConstraintCheck
from mediator.control.coordination_binding import CoordinationBinding
from mediator.control.copying import Copying
from mediator.control.cutover import Cutover
from mediator.control.erasure import Erasure
from mediator.control.evaluation import PlacementEvaluation
from mediator.control.follower import Follower
from mediator.control.former_schemas import FormerSchemas
from mediator.control.index_builds import IndexBuilds
from mediator.control.membership import Membership
from mediator.control.moves import MoveCheck
from mediator.control.plane import ControlPlane
from mediator.control.registry import Registry
from mediator.control.schema_planner import SchemaPlanner
from mediator.control.schemas import Schemas
from mediator.control.tenancy import Tenancy
from mediator.control.unique_builds import UniqueBuilds
from mediator.coordination.binding import BoundToAnother
from mediator.coordination.connecting import Coordination
from mediator.coordination.metrics_exchange import MetricsExchange
from mediator.data_plane.executor import Executor
from mediator.event_streams.port import EventStreams
from mediator.event_streams.service import EventStreamService
from mediator.flows.service import FlowService
from mediator.integrity.check import Integrity
from mediator.integrity.references import ReferenceCheck
from mediator.materialisation.context import ViewContext
from mediator.materialisation.service import ViewService
from mediator.materialisation.state import Watermarks
from mediator.operations.calls import StoreCalls
from mediator.operations.expiry import Sweep
from mediator.operations.fragment_calls import FragmentCalls
from mediator.operations.orphans import OrphanResolver
from mediator.operations.reaping import Reap, reap_all, reaps_of
from mediator.operations.torn_reads import TornReads
from mediator.options import MediatorOptions
from mediator.placement.metrics_registry import MetricsRegistry
from mediator.relocation.administration import ClusterAdministration
from mediator.routing.model import RoutingModel
from mediator.scaling.advisor import SAMPLE_INTERVAL_S, Advisor
from mediator.standing.context import HolderContext as StandingContext
from mediator.standing.service import StandingQueries
from mediator.stores.port import StoreError
from mediator.stores.systems import EarliestTime, StoreFactory, Systems
from mediator.transactions.coordinator import Transactions
from mediator.views.holder import HolderContext
from mediator.views.service import IncrementalViews

__all__ = ["Mediator"]

EVALUATION_SHARE = 0.2
"""Share of the event loop for scoring, which computes over every schema."""


class Mediator:
    """Both planes of one replica; `factory` creates the stores, `observers` get every event."""

    def __init__(
        self, options: MediatorOptions, factory: StoreFactory, observers: Sequence[Observer]
    ) -> None:
        self._options = options
        self._clock = options.clock
        self.replica = uuid4().hex
        self._metrics = MetricsRegistry(self._clock)
        internal = [FilteredObserver(self._metrics.observe, MetricsRegistry.EVENTS)]
        if options.relaying != "elsewhere":  # else there is no relay here to wake
            internal.append(FilteredObserver(self._on_event, {StoreCallFinished}))
        self._observe = broadcast(*internal, *observers)
        self._build_catalogue(factory)
        self._build_shared()
        self.calls = StoreCalls(self.systems, options.guard, self._clock, self._observe)
        events = CatalogueEvents(self.catalogue)
        self._build_data_plane()
        self._follow_changes(events)
        self._build_control_plane(events)
        self.admission = AdmissionControl(
            CatalogueAdmission(self.catalogue),
            HeldRuns(self.catalogue),
            self.flows,
            self.standing_queries,
            self.workers,
            self.replica,
            self._observe,
            self._clock,
        )
        self.scheduler = Scheduler(self._periodic_tasks())

    def _build_catalogue(self, factory: StoreFactory) -> None:
        self.catalogue = Catalogue(self._options.catalogue_url, migrate=self._options.migrate)
        self.runs = CatalogueRuns(self.catalogue)
        self.queue = RunQueue(self.catalogue)
        self.workers = CatalogueWorkers(self.catalogue)
        self.tenancy = Tenancy(CatalogueTenants(self.catalogue), self._clock)
        self._presence = Presence(self.catalogue, alone=self._options.alone)
        self.registrations = CatalogueSystems(self.catalogue)
        self.stored_schemas = CatalogueSchemas(self.catalogue)
        self.systems = Systems()
        self.registry = Registry(
            self.systems, self.registrations, factory, self._metrics, self._observe, self._clock
        )

    def _build_shared(self) -> None:
        url = self._options.coordination_url or None
        self._exchange = MetricsExchange(url)
        retention, naming = self._options.retention, naming_by(self._model)
        self.coordination = shared = Coordination(url, retention, naming) if url else None
        self._binding = CoordinationBinding(self.catalogue, shared) if shared else None
        self._feed = shared.feed if shared else None
        self.clusters = ClusterAdministration(shared.clusters) if shared else None
        self.leases = shared.leases if shared else None
        self.event_streams: EventStreams | None = shared.event_streams if shared else None
        self.event_stream_service = (
            EventStreamService(shared.event_streams, self._clock, self._observe) if shared else None
        )

    def _build_data_plane(self) -> None:
        calls, limits = self.calls, self._options.query_limits
        self._watermarks = Watermarks(self._clock)
        self.data = Executor(
            calls, self._watermarks, self._refresh, limits, self._clock, self._observe
        )
        self.sweep = Sweep(self.systems, calls.write_guarded)
        self.orphan_resolver = OrphanResolver(calls, self._model)
        log = CatalogueTransactions(self.catalogue)
        clock = EarliestTime(self.systems, self._clock)
        self.transactions = Transactions(self.data, calls, log, clock, self._observe)
        calls.intents, self.data.joint = self.transactions.resolver, self.transactions.joint
        self.data.transact = self.transactions.run
        self.integrity = Integrity(self.data, self._feed, self._clock)
        self.reference_check = ReferenceCheck(self.data, TornReads(calls), self._clock)
        self.copying = Copying(self.data, self._clock)
        shared = self.coordination
        self.flows = (
            FlowService(
                self.data,
                shared.message_queue,
                self.replica,
                self._clock,
                self._options.flow_services,
                self._observe,
            )
            if shared
            else None
        )

    def _follow_changes(self, events: CatalogueEvents) -> None:
        """Build the services that relay changes to the feed, and from there to views."""
        calls, shared, followed, materialised = self.calls, self.coordination, None, None
        if shared is not None:
            writers = Writers(shared.writers, self.replica, self._clock)
            calls.acknowledging = LeasedAcknowledging(writers, self._model)
            followed = (shared.feed, shared.leases, writers)
            materialised = ViewContext(
                shared.feed,
                shared.view_state,
                shared.leases,
                calls,
                self._watermarks,
                self._model,
                self.replica,
                self._clock,
            )
        self.changes = ChangeService(
            self.systems,
            self._model,
            self._refresh,
            followed,
            self.replica,
            self._observe,
            self._clock,
        )
        self.views = ViewService(self._model, materialised, events, self._observe)
        self.incremental_views = self._incremental_views()
        self.standing_queries = self._standing_queries()

    def _incremental_views(self) -> IncrementalViews | None:
        shared, subscriptions = self.coordination, self.changes.subscriptions
        if shared is None or subscriptions is None:
            return None
        context = HolderContext(
            self.data,
            shared.feed,
            subscriptions,
            shared.view_results,
            shared.leases,
            self.replica,
            self._clock,
        )
        return IncrementalViews(context)

    def _standing_queries(self) -> StandingQueries | None:
        shared, subscriptions = self.coordination, self.changes.subscriptions
        if shared is None or subscriptions is None:
            return None
        context = StandingContext(
            self.data,
            subscriptions,
            shared.event_streams,
            shared.standing_results,
            shared.leases,
            self.replica,
            self._clock,
            self._observe,
        )
        return StandingQueries(context)

    def _build_control_plane(self, events: CatalogueEvents) -> None:
        options, calls = self._options, self.calls
        follower = Follower(self.stored_schemas, self.data, calls)
        replicas = CatalogueReplicas(self.catalogue)
        self.membership = Membership(replicas, self.replica, follower.in_force, calls, self._clock)
        self._build_schemas(follower)
        self._advisor = Advisor(
            self.registry.candidates, self._metrics.offered, self._clock, energy=options.energy
        )
        self.evaluation = PlacementEvaluation(
            self.registry,
            self.data,
            events,
            CatalogueProposals(self.catalogue),
            options.proposal_margin,
            options.proposal_dwell_s,
            self._observe,
            self._clock,
        )
        self.former_schemas = FormerSchemas(self.stored_schemas, self.data, self._clock)
        control = ControlPlane(
            self.catalogue,
            self.registry,
            self.systems,
            self.schemas,
            self.evaluation,
            self._advisor,
            self.data,
            self.former_schemas,
            self._binding,
        )
        self.control = options.decorate_control(control, self.registrations.secret)
        self.installation = Installation(
            self.catalogue,
            self.data,
            self.control,
            self._feed,
            self._binding,
            options.guard,
            self._clock,
        )

    def _build_schemas(self, follower: Follower) -> None:
        stored = self.stored_schemas
        self.clearing = Clearing(
            stored, self.systems, self.coordination.cleared if self.coordination else ()
        )
        fragments = FragmentCalls(self.systems)
        self.erasure = Erasure(stored, fragments, self.data, follower, self.membership, self._clock)
        moves = MoveCheck(self.copying, self._clock)
        self.cutover = Cutover(
            stored,
            self.data,
            follower,
            self.membership,
            self.views,
            self.clearing,
            fragments,
            moves,
        )
        sweep = ClaimSweep(self.data, self.calls)
        self.unique_builds = UniqueBuilds(
            stored, self.data, follower, self.cutover, sweep, self._clock
        )
        self.index_builds = IndexBuilds(fragments, self._clock)
        planner = SchemaPlanner(
            self.registry, self.systems, self.data, follower, fragments, self._clock
        )
        self.schemas = Schemas(
            stored,
            planner,
            self.data,
            follower,
            self.membership,
            self.views,
            fragments,
            self.cutover,
            ConstraintCheck(self.data, self._clock),
            moves,
            Backfill(self.data, self._clock),
            self.index_builds,
            self.unique_builds,
            self._observe,
            self._clock,
        )

    def _model(self) -> RoutingModel:
        return self.data.model

    def _periodic_tasks(self) -> list[PeriodicTask]:
        periodic_tasks = [
            PeriodicTask("open systems", 2.0, self.registry.reconnect),
            PeriodicTask("read clocks of systems", 1.0, self.read_clocks),
        ]
        if self._binding is not None:
            bind = PeriodicTask("bind the coordination Redis", 1.0, self.renew_binding)
            periodic_tasks.append(bind)
        if self._options.relaying == "only":
            periodic_tasks.append(PeriodicTask("refresh routing model", 1.0, self.schemas.refresh))
        if self._options.relaying != "elsewhere":
            periodic_tasks += [*self.changes.relaying_tasks(), *self.views.relaying_tasks()]
            if self.incremental_views is not None:
                periodic_tasks += self.incremental_views.relaying_tasks()
            if self.standing_queries is not None:
                periodic_tasks += self.standing_queries.relaying_tasks()
        if self._options.relaying != "only":
            periodic_tasks += self._serving_tasks()
        return periodic_tasks

    def _serving_tasks(self) -> list[PeriodicTask]:
        evaluate = partial(self.evaluation.evaluate, EVALUATION_SHARE)
        return [
            PeriodicTask("renew presence", 2.0, self._presence.hold),
            PeriodicTask("confirm routing model", 1.0, self.membership.renew),
            PeriodicTask("recover transactions", 1.0, self.transactions.resolver.recover),
            PeriodicTask("share metrics", 5.0, self.share_metrics),
            PeriodicTask("sample utilisation", SAMPLE_INTERVAL_S, self._advisor.sample),
            PeriodicTask("evaluate placements", 5.0, evaluate),
            PeriodicTask("remove ended replicas", 60.0, self.membership.reap),
            PeriodicTask("reap", 60.0, self.reap),
            PeriodicTask("sweep expired objects", 5.0, lambda: self.sweep.run(self.data.model)),
            PeriodicTask("clear dropped databases", 60.0, self.clearing.run),
            PeriodicTask("erase dropped fields", 5.0, self.erasure.run),
            PeriodicTask("abandon builds", 5.0, self.unique_builds.abandon_overdue),
            *self.changes.periodic_tasks(),
            *self.views.periodic_tasks(),
            *(self.flows.periodic_tasks() if self.flows else ()),
            *(self.standing_queries.serving_tasks() if self.standing_queries else ()),
        ]

    async def open(self) -> None:
        """Open the catalogue and the systems, and load the routing model: enough to serve data.

        Raises:
            CatalogueMismatch: The tables of the catalogue are not those of this code.
            BoundToAnother: The coordination Redis is bound to another installation. A mediator that
                only relays retries meanwhile; the service decides whether to serve without it.
            Unavailable: The catalogue does not answer.
        """
        await self.catalogue.open()
        retried: list[type[MediatorError]] = [Unavailable]  # by the periodic task
        if self._options.relaying == "only":
            retried.append(BoundToAnother)
        with suppress(*retried):
            await self.renew_binding()
        await self.registry.restore(self._options.systems)
        await self.schemas.refresh()

    async def renew_binding(self) -> None:
        """Bind the coordination Redis, if there is one, unless it is bound.

        A process without periodic tasks calls it before it relies on the state in Redis.

        Raises:
            BoundToAnother: It is bound to another installation; this one stops using it.
            Unavailable: The Redis does not answer; at the first call, also the catalogue.
        """
        if self._binding is not None:
            await self._binding.renew()

    async def start(self) -> None:
        """Open everything, and start the periodic tasks.

        Raises as `open`, and `NotAlone` if another replica runs and one of the two must be alone.
        """
        await self.open()
        if self._options.relaying != "only":
            await self._presence.hold()
            # Before the first write: replicas wait for this one only once it has joined
            # (docs/replicas.md).
            await self.membership.renew()
            await self.changes.register()
            await self.transactions.resolver.recover()
        self.scheduler.start()

    async def stop(self) -> None:
        # Tasks first: they use what is closed below.
        await self.scheduler.stop()
        if self.flows is not None:
            await self.flows.close()
        if self.incremental_views is not None:
            await self.incremental_views.close()
        if self.standing_queries is not None:
            await self.standing_queries.close()
        await self.index_builds.close()
        await self.transactions.resolver.close()
        await self.views.close()
        await self.changes.close()
        if self.coordination is not None:
            await self.coordination.close()
        await self.membership.close()
        await self._presence.close()
        await self._exchange.leave(self.replica)
        await asyncio.gather(self.registry.close(), self.catalogue.close(), self._exchange.close())

    def _on_event(self, event: Observation) -> None:
        if self.changes.logs is not None:
            self.changes.logs.on_event(event)

    async def _refresh(self) -> None:
        await self.schemas.refresh()

    async def share_metrics(self) -> None:
        peer_metrics: list[dict[str, Any]] = []
        # If Redis is refused, its metrics are another installation's, and nobody there reads ours.
        if self.coordination is None or not self.coordination.is_refused:
            metrics = {**self._metrics.snapshot(), **self._advisor.shared()}
            await self._exchange.publish(self.replica, metrics)
            peer_metrics = await self._exchange.peers(self.replica)
        self._metrics.merge(peer_metrics)
        self._advisor.merge(peer_metrics)

    async def reap(self) -> None:
        """Delete entries of the transaction log and of the stores past their retention.

        Raises:
            Unavailable: The catalogue does not answer.
            StoreError: A store does not answer; the other stores have been reaped.
        """
        await reap_all(self._reaps, self._clock)

    def _reaps(self) -> list[Reap]:
        return [self.transactions.log.reap, *reaps_of(self.systems)]

    async def read_clocks(self) -> None:
        for guarded in tuple(self.systems):
            with suppress(StoreError):  # retried later; the last reading stays in use
                await guarded.read_clock()
        if self.coordination is not None:
            with suppress(StoreError):
                skew_s = await self.coordination.skew_s()
                self._observe(ClockSkewMeasured("coordination", skew_s))
