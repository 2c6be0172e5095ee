"""Composition of what keeps caches coherent."""

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
from app.coherence.clock_watch import LOOKED_EVERY_S, ClockWatch
from app.coherence.control_plane import CoherentControlPlane, FirstProposal
from app.coherence.estimator_updates import EXCHANGE_KEY, EstimatorUpdates, make_estimator
from app.coherence.layouts import ClassLayouts
from app.coherence.orphans import Recovery, ResolvesWrites
from app.coherence.overview import MOST_PARTITIONS, describe
from app.coherence.partitions import LISTED_EVERY_S, Partitions
from app.coherence.query_registry import OnResultsChanged, QueryRegistry
from app.coherence.write_guard import SketchGuard, answered
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

_MARGIN_OF_A_LAYER_S = 2.0
"""Transit to a cache, and its rounding of times: their part of the margin."""
_MEASURED_EVERY_S = 10.0

_log = logging.getLogger("portolan.purging")

_TAG_APIS: Final[Mapping[str, Callable[[str, str, str], TagApi]]] = {
    "varnish": varnish,
    "fastly": fastly,
    "cloudflare": cloudflare,
}

Connect: TypeAlias = Callable[[], httpx.AsyncBaseTransport | None]
"""Makes what sends the requests to one cache; None: what the HTTP client has of its own."""


def make_purgers(targets: Sequence[PurgeTarget], connect: Connect = lambda: None) -> list[Purger]:
    """Make a purger of each cache; raises `ValueError` for an address or token that cannot be."""
    return [_purger(target, connect()) for target in targets]


def _purger(target: PurgeTarget, transport: httpx.AsyncBaseTransport | None) -> Purger:
    address = target.name, target.at, target.token.get_secret_value()
    if target.kind == "nginx":
        return UrlPurger(*address, transport=transport)
    if target.request is not None:  # as PurgeTarget requires of the kind `tags`
        return TagPurger(TagApi(*address, **target.request.model_dump()), transport)
    return TagPurger(_TAG_APIS[target.kind](*address), transport)


def log_purging(event: PurgeEvent) -> None:
    """Log what operators act on; successes are left to the metrics."""
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
    """Let an event be."""


async def _no_catalogue() -> None:
    raise Unavailable("Caching has not started.", system="catalogue")


class CacheEvents(NamedTuple):
    """What is called with the events of caching.

    Attributes:
        purging: Called with what becomes of purges.
        results: Called with results of queries that may have changed.
        measured: Called now and then with the states of the partitions; None: they are not looked
            at.
    """

    purging: PurgeEvents = log_purging
    granted: Callable[[TtlGranted], None] = _ignore
    results: OnResultsChanged = _ignore
    measured: Callable[[Sequence[SketchPartitionState]], None] | None = None


LOGGED: Final = CacheEvents()
"""Purging is logged, and that is all."""


class Caches:
    """The sketch, and what works with it.

    Args:
        exchange: How replicas exchange what their estimators have seen; None: not at all.
        clock: The replica's clock; what is promised goes by the sketch's.

    Raises:
        ValueError: A cache that is to be purged has an address or a token that cannot be.
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
        answer_s = settings.cache_margin_s - _MARGIN_OF_A_LAYER_S * settings.cache_layers
        self.sketch = sketch
        self.estimator = estimator
        exchange = exchange or MetricsExchange()
        self.updates = EstimatorUpdates(estimator, sketch, exchange, self._routing, clock)
        queries = QueryRegistry(sketch, self._routing)
        layouts = ClassLayouts(sketch, self._routing, queries)
        self.leases = CachedLeases(sketch, clock)
        first = self._purge_first if self._purging and settings.purge_first else None
        wake = self._purging.wake if self._purging else None
        self.guard = SketchGuard(
            sketch, estimator, queries, layouts, self.leases, events.results, clock, first, wake
        )
        present = self._partitions.present
        self.clock_watch = ClockWatch(sketch, self.guard.invalidate_class, present, clock)
        time_us = self.clock_watch.earliest_us
        self.reads = CachedReads(
            sketch, layouts, self.leases, estimator, answer_s, clock, events.granted, time_us
        )
        self._scheduler = Scheduler([])
        self._merging: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def alone(self) -> bool:
        """Whether the sketch knows only what this process writes."""
        return self.sketch.kept_in == "memory"

    def coherent(self, control: ControlPlane, first_proposal: FirstProposal) -> ControlPlane:
        plane = CoherentControlPlane(control, self.sketch, self.guard, first_proposal)
        # What `__getattr__` passes through, mypy does not see.
        return cast("ControlPlane", plane)

    def start(
        self,
        orphan_resolver: ResolvesWrites,
        model: Callable[[], RoutingModel],
        refresh: Callable[[], Awaitable[object]],
    ) -> None:
        """Start the background tasks.

        Args:
            orphan_resolver: Resolves writes that nobody ended.
            model: Returns the routing model that is in force.
            refresh: Has the model be that of the catalogue; raises `Unavailable`.
        """
        self._model, self._refresh = model, refresh
        recovery = Recovery(self.sketch, self.guard, orphan_resolver, self._partitions.all)
        periodic_tasks = [
            PeriodicTask("looking after orphaned writes", 1.0, recovery.run),
            PeriodicTask("removing dropped classes", LISTED_EVERY_S, self._partitions.look),
            PeriodicTask("watching the sketch's clock", LOOKED_EVERY_S, self.clock_watch.look),
            self.leases.start(),
        ]
        if self._events.measured is not None:
            measure = partial(self._measure, self._events.measured)
            periodic_tasks.append(PeriodicTask("measuring the sketch", _MEASURED_EVERY_S, measure))
        self._scheduler = Scheduler([*periodic_tasks, *self.updates.periodic_tasks()])
        self._scheduler.start()
        self._merging = asyncio.create_task(self.updates.merge())
        self._tasks = [asyncio.create_task(self.leases.listen())]
        if self._purging is not None:
            self._tasks.append(asyncio.create_task(self._purging.run()))

    async def stop(self) -> None:
        """Stop the background tasks; the sketch keeps the purges that are left.

        No write lease is cached from then on.
        """
        await self.leases.stop()
        await self._scheduler.stop()
        await end(self._tasks)
        if self._merging is not None:
            await self._merging

    async def close(self) -> None:
        """Release every connection; there are no more writes."""
        if self._purging is not None:
            await self._purging.close()
        await self.updates.close()
        await self.sketch.close()

    def _routing(self) -> RoutingModel:
        return self._model()

    async def _read_catalogue(self) -> None:
        await self._refresh()

    async def overview(self, database: str | None) -> dict[str, Any]:
        """Describe the partitions of the sketch, and what purges caches, for operators.

        Raises:
            Unavailable: The sketch does not answer.
        """
        partitions = [
            partition
            for partition in self._partitions.present()
            if database in (None, partition.database)
        ][:MOST_PARTITIONS]
        with answered():
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
        with answered():
            measured(await self.sketch.states(self._partitions.present()[:MOST_PARTITIONS]))

    async def _purge_first(self, partition: Partition, keys: Sequence[str]) -> None:
        assert self._purging is not None
        if "/".join(partition) in self._settings.purge_first:
            await self._purging.purge_now(partition.database, keys, self._settings.purge_first_s)


def sketch_limits(settings: CacheSettings) -> SketchLimits:
    return SketchLimits(
        longest_ttl_s=settings.cache_longest_s,
        margin_s=settings.cache_margin_s,
        layers=settings.cache_layers,
        lease_s=settings.write_lease_s,
        queries=settings.cache_queries,
        purge_again_s=settings.purge_again_s if settings.purge else None,
    )


def has_sketch(settings: CacheSettings, *, is_coordinated: bool) -> bool:
    """Whether anything may be cached; `is_coordinated`: whether there is a coordination Redis."""
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
    """Open the sketch where the settings say; None: nothing may be cached.

    Args:
        settings: How to cache.
        coordination_url: Of the Redis that is used unless the settings name one.
        events: What is called with the events of caching.
        connect: Makes what sends the requests to a cache that is purged.
        earlier_lifetime_s: For how long copies may be fresh that earlier settings have allowed.

    Raises:
        MissingSetting: Something is missing, or cannot be what it is.
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
