"""Composition of the services that keep caches coherent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, cast

import httpx

from app.coherence.cached_leases import CachedLeases
from app.coherence.cached_reads import CachedReads
from app.coherence.clock_watch import CHECK_INTERVAL_S, ClockWatch
from app.coherence.control_plane import CoherentControlPlane, FirstProposal
from app.coherence.estimator_updates import EXCHANGE_KEY, EstimatorUpdates, make_estimator
from app.coherence.layouts import ClassLayouts
from app.coherence.orphans import Recovery, ResolvesWrites
from app.coherence.overview import MAX_PARTITIONS, describe
from app.coherence.partitions import LIST_INTERVAL_S, Partitions
from app.coherence.query_registry import OnResultsChanged, QueryRegistry
from app.coherence.write_guard import SketchGuard, translating_sketch_errors
from app.settings.main import CacheSettings, MissingSetting
from app.settings.purge import PurgeTarget
from mediator.base.clock import Clock, SystemClock
from mediator.base.concurrency import end
from mediator.base.errors import Unavailable
from mediator.base.periodic_tasks import PeriodicTask, Scheduler
from mediator.control.plane import ControlPlane
from mediator.coordination.metrics_exchange import MetricsExchange
from mediator.routing.model import EMPTY, RoutingModel
from sketch.filter.shape import FilterShape
from sketch.memory.server import MemorySketch
from sketch.protocol.port import (
    Partition,
    ServerSketch,
    SketchLimits,
    SketchPartitionState,
)
from sketch.purging.port import (
    PurgeEvent,
    PurgeEvents,
    PurgeQueueUnanswered,
    Purger,
    PurgerChanged,
    PurgesFailed,
)
from sketch.purging.purgers import TagApi, TagPurger, UrlPurger, cloudflare, fastly, varnish
from sketch.purging.worker import Purging
from sketch.redis.server import RedisSketch
from sketch.ttl import TtlEstimator
from sketch.ttl.port import TtlGranted

__all__ = [
    "CacheEvents",
    "Caches",
    "Connect",
    "has_sketch",
    "log_purging",
    "make_caches",
    "make_purgers",
    "sketch_limits",
]

_MARGIN_PER_LAYER_S = 2.0
"""The margin of a cache layer, for transit and for the rounding of times."""
_MEASURE_INTERVAL_S = 10.0

_log = logging.getLogger("portolan.purging")

_TAG_APIS: Final[Mapping[str, Callable[[str, str, str], TagApi]]] = {
    "varnish": varnish,
    "fastly": fastly,
    "cloudflare": cloudflare,
}

Connect: TypeAlias = Callable[[], httpx.AsyncBaseTransport | None]
"""Creates the transport of requests to one cache; None: the HTTP client's default."""


def make_purgers(targets: Sequence[PurgeTarget], connect: Connect = lambda: None) -> list[Purger]:
    """Create a purger for each cache; raise `ValueError` for an invalid address or token."""
    return [_purger(target, connect()) for target in targets]


def _purger(target: PurgeTarget, transport: httpx.AsyncBaseTransport | None) -> Purger:
    address = target.name, target.at, target.token.get_secret_value()
    if target.kind == "nginx":
        return UrlPurger(*address, transport=transport)
    if target.request is not None:  # as PurgeTarget requires of the kind `tags`
        return TagPurger(TagApi(*address, **target.request.model_dump()), transport)
    return TagPurger(_TAG_APIS[target.kind](*address), transport)


def log_purging(event: PurgeEvent) -> None:
    """Log the events on which operators act; successes are only in the metrics."""
    match event:
        case PurgerChanged(down=True) | PurgeQueueUnanswered():
            _log.warning("%s", event)
        case PurgerChanged():
            _log.info("%s", event)
        case PurgesFailed():
            _log.debug("%s", event)
        case _:
            return


def _ignore(_: object) -> None:
    """Ignore an event."""


async def _no_catalogue() -> None:
    raise Unavailable("Caching has not started.", system="catalogue")


class CacheEvents(NamedTuple):
    """Callbacks for the events of caching.

    Attributes:
        purging: Called with the results of purges.
        results: Called with the numbers of query results that may have changed.
        measured: Called periodically with the states of the partitions; None: not measured.
    """

    purging: PurgeEvents = log_purging
    granted: Callable[[TtlGranted], None] = _ignore
    results: OnResultsChanged = _ignore
    measured: Callable[[Sequence[SketchPartitionState]], None] | None = None


LOGGED: Final = CacheEvents()
"""Only purging is logged."""


class Caches:
    """The sketch, and the services around it.

    Args:
        exchange: Exchanges the counts of estimators between replicas; None: no exchange.
        clock: The replica's clock; grants use the sketch's clock.

    Raises:
        ValueError: A cache to purge has an invalid address or token.
    """

    def __init__(
        self,
        settings: CacheSettings,
        sketch: ServerSketch,
        estimator: TtlEstimator,
        events: CacheEvents = LOGGED,
        exchange: MetricsExchange | None = None,
        clock: Clock | None = None,
        connect: Connect = lambda: None,
    ) -> None:
        self._settings = settings
        self._events = events
        self._model: Callable[[], RoutingModel] = lambda: EMPTY
        self._refresh: Callable[[], Awaitable[object]] = _no_catalogue
        purgers = make_purgers(settings.purge, connect)
        clock = clock or SystemClock()
        self._partitions = Partitions(
            sketch, self._routing, self._read_catalogue, clock, sketch.limits.lease_s
        )
        self._purging = (
            Purging(sketch, purgers, self._partitions.all, events.purging) if purgers else None
        )
        answer_s = settings.cache_margin_s - _MARGIN_PER_LAYER_S * settings.cache_layers
        self.sketch = sketch
        self.estimator = estimator
        exchange = exchange or MetricsExchange()
        self.updates = EstimatorUpdates(estimator, sketch, exchange, self._routing, clock)
        queries = QueryRegistry(sketch, self._routing)
        layouts = ClassLayouts(sketch, self._routing, queries)
        self.leases = CachedLeases(sketch, clock)
        purge_first = self._purge_first if self._purging and settings.purge_first else None
        wake = self._purging.wake if self._purging else None
        self.guard = SketchGuard(
            sketch,
            estimator,
            queries,
            layouts,
            self.leases,
            events.results,
            clock,
            purge_first,
            wake,
        )
        current = self._partitions.current
        self.clock_watch = ClockWatch(sketch, self.guard.invalidate_class, current, clock)
        time_us = self.clock_watch.earliest_us
        self.reads = CachedReads(
            sketch, layouts, self.leases, estimator, answer_s, clock, events.granted, time_us
        )
        self._scheduler = Scheduler([])
        self._merge_task: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def alone(self) -> bool:
        """Whether the sketch knows only this process's writes."""
        return self.sketch.kept_in == "memory"

    def coherent(self, control: ControlPlane, first_proposal: FirstProposal) -> ControlPlane:
        plane = CoherentControlPlane(control, self.sketch, self.guard, first_proposal)
        # mypy does not see the methods that `__getattr__` passes through.
        return cast("ControlPlane", plane)

    def start(
        self,
        orphan_resolver: ResolvesWrites,
        model: Callable[[], RoutingModel],
        refresh: Callable[[], Awaitable[object]],
    ) -> None:
        """Start the background tasks.

        Args:
            orphan_resolver: Resolves orphaned writes.
            model: Returns the current routing model.
            refresh: Updates the model from the catalogue; raises `Unavailable`.
        """
        self._model, self._refresh = model, refresh
        recovery = Recovery(self.sketch, self.guard, orphan_resolver, self._partitions.all)
        periodic_tasks = [
            PeriodicTask("looking after orphaned writes", 1.0, recovery.run),
            PeriodicTask(
                "removing dropped classes", LIST_INTERVAL_S, self._partitions.remove_dropped
            ),
            PeriodicTask("watching the sketch's clock", CHECK_INTERVAL_S, self.clock_watch.check),
            self.leases.start(),
        ]
        if self._events.measured is not None:
            measure = partial(self._measure, self._events.measured)
            periodic_tasks.append(
                PeriodicTask("measuring the sketch", _MEASURE_INTERVAL_S, measure)
            )
        self._scheduler = Scheduler([*periodic_tasks, *self.updates.periodic_tasks()])
        self._scheduler.start()
        self._merge_task = asyncio.create_task(self.updates.merge())
        self._tasks = [asyncio.create_task(self.leases.listen())]
        if self._purging is not None:
            self._tasks.append(asyncio.create_task(self._purging.run()))

    async def stop(self) -> None:
        """Stop the background tasks; the sketch keeps the remaining purges.

        No write leases are cached from then on.
        """
        await self.leases.stop()
        await self._scheduler.stop()
        await end(self._tasks)
        if self._merge_task is not None:
            await self._merge_task

    async def close(self) -> None:
        """Close all connections, after the last write."""
        if self._purging is not None:
            await self._purging.close()
        await self.updates.close()
        await self.sketch.close()

    def _routing(self) -> RoutingModel:
        return self._model()

    async def _read_catalogue(self) -> None:
        await self._refresh()

    async def overview(self, database: str | None) -> dict[str, Any]:
        """Describe the partitions of the sketch, and the purgers, for operators.

        Raises:
            Unavailable: The sketch does not answer.
        """
        partitions = [
            partition
            for partition in self._partitions.current()
            if database in (None, partition.database)
        ][:MAX_PARTITIONS]
        with translating_sketch_errors():
            items = [
                describe(
                    state,
                    self.sketch.shape,
                    await self.sketch.snapshot([state.partition]),
                    self.sketch.limits.lease_s,
                )
                for state in await self.sketch.states(partitions)
            ]
        standing = self._purging.standing if self._purging else {}
        purgers = [{"name": name, "failing": not works} for name, works in standing.items()]
        return {"kept_in": self.sketch.kept_in, "items": items, "purgers": purgers}

    async def _measure(self, measured: Callable[[Sequence[SketchPartitionState]], None]) -> None:
        with translating_sketch_errors():
            measured(await self.sketch.states(self._partitions.current()[:MAX_PARTITIONS]))

    async def _purge_first(self, partition: Partition, keys: Sequence[str]) -> None:
        assert self._purging is not None
        if "/".join(partition) in self._settings.purge_first:
            await self._purging.purge_now(partition.database, keys, self._settings.purge_first_s)


def sketch_limits(settings: CacheSettings) -> SketchLimits:
    return SketchLimits(
        max_ttl_s=settings.cache_max_ttl_s,
        margin_s=settings.cache_margin_s,
        layers=settings.cache_layers,
        lease_s=settings.write_lease_s,
        queries=settings.cache_queries,
        purge_repeat_s=settings.purge_repeat_s if settings.purge else None,
    )


def has_sketch(settings: CacheSettings, *, is_coordinated: bool) -> bool:
    """Whether caching is on; `is_coordinated`: whether there is a coordination Redis."""
    if settings.sketch == "auto":
        return is_coordinated or bool(settings.sketch_url)
    return settings.sketch != "off"


def make_caches(
    settings: CacheSettings,
    coordination_url: str | None,
    events: CacheEvents = LOGGED,
    connect: Connect = lambda: None,
    earlier_lifetime_s: float = 0.0,
) -> Caches | None:
    """Open the sketch that the settings choose; None: caching is off.

    Args:
        settings: The settings of caching.
        coordination_url: The Redis to use unless the settings name one.
        events: Callbacks for the events of caching.
        connect: Creates the transport of requests to a cache that is purged.
        earlier_lifetime_s: The longest freshness lifetime that earlier settings allowed, in
            seconds.

    Raises:
        MissingSetting: A setting is missing or invalid.
    """
    if not has_sketch(settings, is_coordinated=coordination_url is not None):
        return None
    url = settings.sketch_url.get_secret_value() if settings.sketch_url else coordination_url
    limits = replace(sketch_limits(settings), earlier_lifetime_s=earlier_lifetime_s)
    shape = FilterShape(settings.sketch_bits, settings.sketch_hashes)
    if settings.sketch == "memory":
        sketch: ServerSketch = MemorySketch(limits, shape)
        exchange = MetricsExchange()
    elif url is None:
        raise MissingSetting(
            "There is no Redis for the sketch: set PORTOLAN_SKETCH_URL or"
            " PORTOLAN_COORDINATION_URL, or PORTOLAN_SKETCH=off."
        )
    else:
        sketch = RedisSketch(url, limits, shape)
        exchange = MetricsExchange(url, EXCHANGE_KEY)
    try:
        estimator = make_estimator(settings)
        return Caches(settings, sketch, estimator, events, exchange, connect=connect)
    except ValueError as error:
        raise MissingSetting(f"PORTOLAN_PURGE: {error}") from None
