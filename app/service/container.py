"""The composition root: builds a mediator, two applications, and observers from the settings."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from fastapi import FastAPI
from pydantic import SecretStr

from app.admin.api.health import Refresh
from app.admin.application import create_admin_app
from app.admin.context import AdminContext
from app.api.application import DataApp
from app.api.jobs.runs import JobBackend
from app.api.options import DataOptions, DataServices
from app.api.router import DataApi
from app.coherence.caches import Caches, make_caches
from app.coherence.probe_readers import cache_readers
from app.security.data_port import RequestAuthoriser
from app.security.security import Security
from app.service.mediators import (
    earlier_lifetime_s,
    has_relay_process,
    mediator_options,
    secret_value,
)
from app.service.relays import RelayProcess
from app.service.traffic import MeasuredTraffic
from app.settings.access import AccessSettings
from app.settings.main import (
    CacheSettings,
    HttpSettings,
    JobSettings,
    MediatorSettings,
    MissingSetting,
    SystemSettings,
)
from app.settings.systems_file import SystemsFile
from app.settings.telemetry import TelemetrySettings
from app.telemetry.costly_queries import CostlyQueries
from app.telemetry.metrics import Metrics
from app.telemetry.recent_events import RECORDED_EVENTS, RecentEvents
from app.telemetry.request_history import SAMPLE_PERIOD_S, RequestHistory, RequestSampler
from app.telemetry.telemetry import Telemetry
from app.telemetry.traces import Application, traced
from mediator.base.clock import SystemClock
from mediator.base.observation import CostlyQueryFound, FilteredObserver, Observer, broadcast
from mediator.base.periodic_tasks import PeriodicTask, Scheduler
from mediator.catalogue.replicas import NotAlone
from mediator.embedded.port import Endpoint, Kind
from mediator.service import Mediator
from mediator.staleness_probes.service import StalenessProbes
from mediator.stores.kinds import make_store

__all__ = ["Container", "build", "on_embedded"]

EMBEDDED_NAMES: dict[Kind, str] = {"redis": "redis", "postgresql": "postgres", "mongodb": "mongo"}
"""Names under which the embedded stores are registered, by kind."""


@dataclass(frozen=True, slots=True)
class Container:
    mediator: Mediator
    data: Application
    admin: FastAPI
    relays: RelayProcess | None
    api: DataApi
    telemetry: Telemetry
    context: AdminContext
    systems_file: SystemsFile | None
    scheduler: Scheduler

    async def reread(self) -> None:
        """Apply the file of systems if it has changed."""
        if self.systems_file is not None:
            await self.systems_file.apply_changes()

    def end_streams(self) -> None:
        """End endless answers, so that the server can shut down."""
        if self.mediator.changes.subscriptions is not None:
            self.mediator.changes.subscriptions.end()
        self.api.end_streams()

    async def stop(self) -> None:
        await self.scheduler.stop()
        context, caches = self.context, self.context.caches
        for component in (context.probes, context.security, self.relays, caches, self.mediator):
            if component is not None:
                await component.stop()
        if caches is not None:
            # After the mediator: its last writes still call the sketch.
            await caches.close()
        await self.telemetry.close()


@dataclass(frozen=True, slots=True)
class _RecentHistory:
    """The last hour for the pages, in memory only."""

    events: RecentEvents
    queries: CostlyQueries
    requests: RequestHistory

    @classmethod
    def of(cls, metrics: Metrics) -> _RecentHistory:
        sampler = RequestSampler(metrics.registry, metrics.count_waiting)
        return cls(RecentEvents(), CostlyQueries(), RequestHistory(sampler))

    @property
    def observers(self) -> list[Observer]:
        return [
            FilteredObserver(self.events.observe, RECORDED_EVENTS),
            FilteredObserver(self.queries.observe, {CostlyQueryFound}),
        ]


async def build(
    http: HttpSettings,
    settings: MediatorSettings,
    caching: CacheSettings | None = None,
    access: AccessSettings | None = None,
) -> Container:
    """Build and start the service.

    Without `caching` nothing is cached, and without `access` requests are not authenticated.

    Raises:
        MissingSetting: There is no catalogue.
        Unavailable: The catalogue does not answer.
    """
    telemetry = Telemetry(TelemetrySettings())
    recent = _RecentHistory.of(telemetry.metrics)
    observers: list[Observer] = [*telemetry.observers, *recent.observers]
    observe = broadcast(*observers)
    caches = await _caches(settings, caching, telemetry)
    options = mediator_options(settings, caches, alone=caches is not None and caches.alone)
    mediator = Mediator(options, make_store, observers)
    await _start(mediator, caching)
    security = await _secure(mediator, access, observe)
    relays = _relays(settings, observe)
    if caches is not None:
        caches.start(
            mediator.orphan_resolver, lambda: mediator.data.model, mediator.control.databases
        )
    directory = JobSettings().directory(settings.data_dir)
    job_backend = JobBackend(mediator.runs, mediator.workers, directory)
    authoriser = limiter = None
    if security is not None:
        authoriser = security.authoriser(lambda: mediator.data.model, mediator.admission.refusals)
        limiter = authoriser.limiter
        if mediator.flows and mediator.standing_queries:
            admitted = security.metered_work(limiter).admitted
            mediator.flows.admitted = mediator.standing_queries.admitted = admitted
    data_options = await _data_options(http, caching, mediator)
    data = _data_api(mediator, data_options, observe, caches, job_backend, authoriser)
    _connect_metrics(telemetry.metrics, mediator, data, security, caches)
    sampler = RequestSampler(telemetry.metrics.registry, telemetry.metrics.count_waiting)
    mediator.admission.traffic = MeasuredTraffic(
        sampler, lambda: data.active, limiter, SystemClock()
    )
    refresh = telemetry.state_refresher(mediator).refresh
    probes = _probes(mediator, caching)
    context = _admin_context(mediator, caches, security, data, recent, probes, refresh)
    admin = create_admin_app(mediator.control, telemetry.metrics.registry, context)
    telemetry.start(refresh)
    application = traced(DataApp(data, authoriser), telemetry.traces)
    file = _systems_file(settings, mediator)
    history = PeriodicTask("history of requests", SAMPLE_PERIOD_S, recent.requests.sample)
    tasks = [history, *mediator.admission.periodic_tasks()]
    scheduler = Scheduler([*tasks, *([file.periodic_task()] if file else [])])
    scheduler.start()
    return Container(
        mediator, application, admin, relays, data, telemetry, context, file, scheduler
    )


async def _caches(
    settings: MediatorSettings, caching: CacheSettings | None, telemetry: Telemetry
) -> Caches | None:
    if caching is None:
        return None
    url, events = secret_value(settings.coordination_url), telemetry.cache_events()
    earlier_s = await earlier_lifetime_s(settings, caching)
    return make_caches(caching, url, events, telemetry.connect, earlier_s)


def _data_api(
    mediator: Mediator,
    options: DataOptions,
    observe: Observer,
    caches: Caches | None,
    job_backend: JobBackend,
    authoriser: RequestAuthoriser | None,
) -> DataApi:
    services = DataServices(
        mediator.changes.subscriptions,
        caches,
        mediator.transactions.run,
        job_backend,
        mediator.flows,
        mediator.incremental_views,
        mediator.event_stream_service,
        mediator.standing_queries,
    )
    former_schemas, refusals = mediator.former_schemas, mediator.admission.refusals
    return DataApi(mediator.data, options, observe, services, authoriser, former_schemas, refusals)


def _admin_context(
    mediator: Mediator,
    caches: Caches | None,
    security: Security | None,
    data: DataApi,
    recent: _RecentHistory,
    probes: StalenessProbes,
    refresh: Refresh,
) -> AdminContext:
    return AdminContext(
        views=mediator.views,
        probes=probes,
        caches=caches,
        refresh=refresh,
        tenancy=mediator.tenancy,
        admission=mediator.admission,
        security=security,
        data=data,
        recent_events=recent.events,
        costly_queries=recent.queries,
        request_history=recent.requests,
        integrity=mediator.integrity,
        reference_check=mediator.reference_check,
        copying=mediator.copying,
        clusters=mediator.clusters,
        only_loopback=security is None,
        compresses=data.compresses,
    )


async def _data_options(
    http: HttpSettings, caching: CacheSettings | None, mediator: Mediator
) -> DataOptions:
    key = await mediator.registrations.secret("cursors", secrets.token_hex(32))
    return DataOptions(
        cursor_key=bytes.fromhex(key),
        origins={name: tuple(origins) for name, origins in http.cors_origins.items()},
        max_body_bytes=http.body_limit,
        compresses=http.compression,
        sketch_valid_s=caching.sketch_valid_s if caching else 0.0,
    )


def _probes(mediator: Mediator, caching: CacheSettings | None) -> StalenessProbes:
    readers = cache_readers(caching.probe_caches) if caching else None
    return StalenessProbes(mediator.data, SystemClock(), readers, mediator.leases)


def _connect_metrics(
    metrics: Metrics,
    mediator: Mediator,
    data: DataApi,
    security: Security | None,
    caches: Caches | None,
) -> None:
    subscriptions = mediator.changes.subscriptions
    metrics.subscribers.set_function(lambda: subscriptions.count if subscriptions else 0)
    metrics.connect(metrics.active, lambda: data.active)
    metrics.connect(metrics.view_ages, mediator.views.ages)
    metrics.connect(metrics.feed_lags, mediator.changes.lags)
    if caches is not None:
        metrics.caches.regrets = lambda: caches.estimator.regrets
    if security is not None:
        stored = security.stored
        metrics.connect(
            metrics.tenant_objects,
            lambda: {(name,): count for name, count in stored.counts.items()},
        )


async def _secure(
    mediator: Mediator, access: AccessSettings | None, observe: Observer
) -> Security | None:
    if access is None:
        return None
    cache, count_objects = mediator.tenancy.cache, mediator.schemas.count
    security = Security(access, cache, SystemClock(), count_objects, observe)
    await security.start()
    return security


def on_embedded(settings: MediatorSettings, endpoints: Mapping[Kind, Endpoint]) -> MediatorSettings:
    """Point settings at embedded stores: for the catalogue, coordination, and as systems."""
    systems = [
        SystemSettings.model_validate(
            {
                "name": EMBEDDED_NAMES[kind],
                "kind": kind,
                "url": endpoint.url,
                "durability": settings.durability,
                "partitions": 1,  # an embedded server is never a cluster
            }
        )
        # Among equally durable systems the first one gets the data without requirements.
        for kind, endpoint in sorted(endpoints.items(), key=lambda item: item[0] != "postgresql")
    ]
    return settings.model_copy(
        update={
            "catalogue_url": SecretStr(endpoints["postgresql"].url),
            "coordination_url": SecretStr(endpoints["redis"].url),
            "systems": [*systems, *settings.systems],
        }
    )


async def _start(mediator: Mediator, caching: CacheSettings | None) -> None:
    try:
        await mediator.start()
    except NotAlone as error:
        await mediator.stop()
        owner = "this" if caching and caching.sketch == "memory" else "the other"
        raise MissingSetting(
            f"Another replica serves this installation, and {owner} one has its cache sketch in"
            " memory, which does not learn what others write. Let all of them share a sketch:"
            " set PORTOLAN_SKETCH=redis, and PORTOLAN_SKETCH_URL or PORTOLAN_COORDINATION_URL to"
            " the same Redis; or PORTOLAN_SKETCH=off for all; or stop the other replica."
        ) from error


def _systems_file(settings: MediatorSettings, mediator: Mediator) -> SystemsFile | None:
    path = settings.systems_file
    return SystemsFile(path, mediator.registry.reconfigure) if path else None


def _relays(settings: MediatorSettings, observe: Observer) -> RelayProcess | None:
    if not has_relay_process(settings):
        return None
    relays = RelayProcess(settings, observe)
    relays.start()
    return relays
