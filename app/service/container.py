"""The composition root: settings become a mediator, two applications, and observers."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

from fastapi import FastAPI
from pydantic import SecretStr

from app.admin.api.health import Refresh
from app.admin.application import create_admin_app
from app.admin.context import AdminContext
from app.api.application import DataApp
from app.api.jobs.progress import RunStreams
from app.api.jobs.runs import JobBackend
from app.api.options import DataOptions
from app.api.router import DataApi
from app.coherence.caches import Caches, make_caches
from app.coherence.probe_readers import cache_readers
from app.security.security import Security
from app.service.relays import RelayProcess
from app.settings.access import AccessSettings
from app.settings.main import (
    CacheSettings,
    HttpSettings,
    JobSettings,
    MediatorSettings,
    MissingSetting,
    SystemSettings,
)
from app.settings.systems_file import SystemsFile, read_systems
from app.settings.telemetry import TelemetrySettings
from app.telemetry.log import log_observation
from app.telemetry.recent_events import KEPT, RecentEvents
from app.telemetry.telemetry import Telemetry
from app.telemetry.traces import Application, traced
from mediator.base.clock import SystemClock
from mediator.base.observation import FilteredObserver, Observer, broadcast
from mediator.base.periodic_tasks import Scheduler
from mediator.catalogue.replicas import NotAlone
from mediator.coordination.feed import Retention
from mediator.embedded.port import Endpoint, Kind
from mediator.query.budget import Limits
from mediator.scaling.energy import Energy
from mediator.service import Mediator, MediatorOptions
from mediator.staleness_probes.service import StalenessProbes
from mediator.stores.kinds import make_store

__all__ = ["Container", "build", "on_embedded", "reading", "writing"]

EMBEDDED_NAMES: dict[Kind, str] = {"redis": "redis", "postgresql": "postgres", "mongodb": "mongo"}
"""Names under which the embedded stores are registered, by kind."""


@dataclass(frozen=True, slots=True)
class Container:
    """Everything that serves, started and stopped together."""

    mediator: Mediator
    data: Application
    admin: FastAPI
    relays: RelayProcess | None
    job_backend: JobBackend
    telemetry: Telemetry
    context: AdminContext
    systems_file: SystemsFile | None
    scheduler: Scheduler

    async def reread(self) -> None:
        """Look at once whether the file of systems has changed."""
        if self.systems_file is not None:
            await self.systems_file.look()

    def end_streams(self) -> None:
        """End answers that have no end of their own, so that requests can be finished."""
        self.mediator.changes.end_streams()
        self.job_backend.streams.end()

    async def stop(self) -> None:
        """Release every connection."""
        await self.scheduler.stop()
        context, caches = self.context, self.context.caches
        for part in (context.probes, context.security, self.relays, caches, self.mediator):
            if part is not None:
                await part.stop()
        if caches is not None:
            await caches.close()
        await self.telemetry.close()


async def build(
    http: HttpSettings,
    settings: MediatorSettings,
    caching: CacheSettings | None = None,
    access: AccessSettings | None = None,
) -> Container:
    """Build and start the service.

    Nothing is cached without `caching`, and nobody is authenticated without `access`.

    Raises:
        MissingSetting: There is no catalogue.
        Unavailable: The catalogue does not answer.
    """
    recent_events, telemetry = RecentEvents(), Telemetry(TelemetrySettings())
    observers: tuple[Observer, ...] = (
        *telemetry.observers,
        FilteredObserver(recent_events.observe, KEPT),
    )
    caches = _caches(settings, caching, telemetry)
    mediator = _mediator(settings, caches, observers)
    await _start(mediator, caching)
    security = await _secure(mediator, access, broadcast(*observers))
    relays = _relays(settings, broadcast(*observers))
    _keep_coherent(caches, mediator, telemetry)
    job_backend = _job_backend(mediator, settings)
    authoriser = security.authoriser(lambda: mediator.data.model) if security else None
    data = DataApi(
        mediator.data,
        await _options_of_data(http, caching, mediator),
        broadcast(*observers),
        mediator.changes.subscriptions,
        caches,
        mediator.transactions.run,
        job_backend,
        authoriser,
    )
    _connect_metrics(telemetry, mediator, data, security)
    refresh = telemetry.job_refresher(mediator).refresh
    probes = _probes(mediator, caching)
    context = _admin_context(mediator, caches, security, data, recent_events, probes, refresh)
    admin = create_admin_app(mediator.control, telemetry.metrics.registry, context)
    telemetry.start(refresh)
    served = traced(DataApp(data, authoriser), telemetry.traces)
    file = _followed(settings, mediator)
    scheduler = Scheduler([file.periodic_task()] if file else [])
    scheduler.start()
    return Container(
        mediator, served, admin, relays, job_backend, telemetry, context, file, scheduler
    )


def _caches(
    settings: MediatorSettings, caching: CacheSettings | None, telemetry: Telemetry
) -> Caches | None:
    if caching is None:
        return None
    url, events = _revealed(settings.coordination_url), telemetry.cache_events()
    return make_caches(caching, url, events, telemetry.connect)


def _mediator(
    settings: MediatorSettings, caches: Caches | None, observers: Sequence[Observer]
) -> Mediator:
    options = _coherent(_options(settings, alone=caches is not None and caches.alone), caches)
    return Mediator(options, make_store, observers)


def _coherent(options: MediatorOptions, caches: Caches | None) -> MediatorOptions:
    """Return options of a mediator that keeps caches coherent, whatever it writes or changes."""
    if caches is None:
        return options
    return replace(options, guard=caches.guard, decorate_control=caches.coherent)


def _keep_coherent(caches: Caches | None, mediator: Mediator, telemetry: Telemetry) -> None:
    if caches is not None:
        telemetry.metrics.caches.regrets = lambda: caches.estimator.regrets
        caches.start(mediator.orphan_resolver, lambda: mediator.data.model)


def _admin_context(
    mediator: Mediator,
    caches: Caches | None,
    security: Security | None,
    data: DataApi,
    recent_events: RecentEvents,
    probes: StalenessProbes,
    refresh: Refresh,
) -> AdminContext:
    """Return what the admin application needs beside the control plane."""
    return AdminContext(
        views=mediator.views,
        probes=probes,
        caches=caches,
        refresh=refresh,
        tenancy=mediator.tenancy,
        security=security,
        data=data,
        recent_events=recent_events,
        integrity=mediator.integrity,
        only_loopback=security is None,
    )


def _job_backend(mediator: Mediator, settings: MediatorSettings) -> JobBackend:
    directory = JobSettings().directory(settings.data_dir)
    return JobBackend(mediator.runs, mediator.workers, directory, RunStreams(mediator.runs))


async def _options_of_data(
    http: HttpSettings, caching: CacheSettings | None, mediator: Mediator
) -> DataOptions:
    key = await mediator.registrations.secret("cursors", secrets.token_hex(32))
    return DataOptions(
        cursor_key=bytes.fromhex(key),
        origins={name: tuple(origins) for name, origins in http.cors_origins.items()},
        max_body_bytes=http.body_limit,
        sketch_valid_s=caching.sketch_valid_s if caching else 0.0,
    )


def _probes(mediator: Mediator, caching: CacheSettings | None) -> StalenessProbes:
    readers = cache_readers(caching.probe_caches) if caching else None
    return StalenessProbes(mediator.data, SystemClock(), readers, leases=mediator.leases)


def _connect_metrics(
    telemetry: Telemetry, mediator: Mediator, data: DataApi, security: Security | None
) -> None:
    """Connect the gauges that no event carries."""
    metrics = telemetry.metrics
    subscriptions = mediator.changes.subscriptions
    metrics.subscribers.set_function(lambda: subscriptions.count if subscriptions else 0)
    metrics.connect(metrics.active, lambda: data.active)
    metrics.connect(metrics.view_ages, mediator.views.ages)
    if security is not None:
        stored = security.stored
        metrics.connect(
            metrics.tenant_objects, lambda: {(name,): count for name, count in stored.known.items()}
        )


async def _secure(
    mediator: Mediator, access: AccessSettings | None, observe: Observer
) -> Security | None:
    if access is None:
        return None
    count = mediator.schemas.count
    security = Security(access, mediator.tenancy.cache, SystemClock(), count, observe)
    await security.start()
    return security


@asynccontextmanager
async def writing(settings: MediatorSettings, caching: CacheSettings) -> AsyncIterator[Mediator]:
    """Run a mediator that keeps caches coherent as the service does, and serves no requests.

    Raises:
        MissingSetting: There is no catalogue, or the sketch is not shared.
        Unavailable: The catalogue does not answer.
    """
    if caching.sketch == "memory":
        raise MissingSetting("A sketch in memory is one process's own: set PORTOLAN_SKETCH=redis.")
    caches = make_caches(caching, _revealed(settings.coordination_url))
    options = _coherent(_options(settings, alone=False), caches)
    mediator = Mediator(options, make_store, [log_observation])
    async with AsyncExitStack() as rest:
        if caches is not None:
            rest.push_async_callback(caches.close)
        rest.push_async_callback(mediator.stop)
        await mediator.start()
        if caches is not None:
            rest.push_async_callback(caches.stop)
            caches.start(mediator.orphan_resolver, lambda: mediator.data.model)
        yield mediator


@asynccontextmanager
async def reading(settings: MediatorSettings) -> AsyncIterator[Mediator]:
    """Open a mediator that only reads: it does nothing in the background, and upgrades nothing.

    Raises:
        MissingSetting: There is no catalogue.
        Conflict: The catalogue is of another version.
        Unavailable: The catalogue does not answer.
    """
    options = replace(_options(settings, alone=False), migrate=False)
    mediator = Mediator(options, make_store, [log_observation])
    try:
        await mediator.open()
        yield mediator
    finally:
        await mediator.stop()


def on_embedded(settings: MediatorSettings, endpoints: Mapping[Kind, Endpoint]) -> MediatorSettings:
    """Point settings at embedded stores: catalogue, coordination, and the systems themselves."""
    systems = [
        SystemSettings.model_validate(
            {
                "name": EMBEDDED_NAMES[kind],
                "kind": kind,
                "url": endpoint.url,
                "durability": settings.durability,
                "partitions": 1,  # one server of our own is never a cluster
            }
        )
        # Of equally durable systems the first one gets what nothing is required of.
        for kind, endpoint in sorted(endpoints.items(), key=lambda each: each[0] != "postgresql")
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
        whose = "this" if caching and caching.sketch == "memory" else "the other"
        raise MissingSetting(
            f"Another replica serves this installation, and {whose} one has its cache sketch in"
            " memory, which does not learn what others write. Let all of them share a sketch:"
            " set PORTOLAN_SKETCH=redis, and PORTOLAN_SKETCH_URL or PORTOLAN_COORDINATION_URL to"
            " the same Redis; or PORTOLAN_SKETCH=off for all; or stop the other replica."
        ) from error


def _options(settings: MediatorSettings, *, alone: bool) -> MediatorOptions:
    return MediatorOptions(
        catalogue_url=settings.required_catalogue_url,
        migrate=settings.catalogue_migrate == "auto",
        coordination_url=_revealed(settings.coordination_url),
        systems=[system.registration() for system in _systems(settings)],
        proposal_margin=settings.proposal_margin,
        proposal_dwell_s=settings.proposal_dwell_s,
        retention=Retention(settings.feed_changes, settings.feed_hours * 3600),
        query_limits=Limits(rows=settings.query_rows, seconds=settings.query_seconds),
        energy=settings.energy.stated() if settings.energy else Energy(),
        alone=alone,
        relaying="elsewhere" if _has_relay_process(settings) else "here",
    )


def _systems(settings: MediatorSettings) -> list[SystemSettings]:
    """Return what settings and file name; of a system that both name, the file holds."""
    named = {system.name: system for system in settings.systems}
    if settings.systems_file is not None:
        named |= {system.name: system for system in read_systems(settings.systems_file)}
    return list(named.values())


def _followed(settings: MediatorSettings, mediator: Mediator) -> SystemsFile | None:
    path = settings.systems_file
    return SystemsFile(path, read_systems(path), mediator.registry.reconfigure) if path else None


def _has_relay_process(settings: MediatorSettings) -> bool:
    return settings.relays == "process" and settings.coordination_url is not None


def _relays(settings: MediatorSettings, observe: Observer) -> RelayProcess | None:
    if not _has_relay_process(settings):
        return None
    relays = RelayProcess(settings, observe)
    relays.start()
    return relays


def _revealed(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret else None
