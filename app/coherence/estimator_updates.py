"""Periodic updates of the TTL estimator, off the path of requests.

The estimator counts reads and writes where they happen, in microseconds and without I/O. Every few
seconds it gets the terms of classes, the fill of their filters, and the counts of other replicas.
These only improve TTLs: if the Redis of the exchange does not answer, each replica uses its own
counts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

from app.settings.main import CacheSettings
from mediator.base.clock import Clock
from mediator.base.periodic_tasks import PeriodicTask
from mediator.coordination.metrics_exchange import MetricsExchange
from mediator.routing.model import RoutingModel
from sketch.filter.bloom import BloomFilter
from sketch.protocol.port import FilterSnapshot, Partition, ServerSketch, SketchUnavailable
from sketch.ttl import (
    Cate,
    CateSettings,
    Constraints,
    Learner,
    LearnerSettings,
    Memory,
    Static,
    Terms,
    TtlEstimator,
    Weights,
)

__all__ = ["EXCHANGE_KEY", "EstimatorUpdates", "make_estimator"]

EXCHANGE_KEY: Final = "portolan:lifetimes"
"""The key of the exchange between replicas, in the sketch's Redis."""

_TERMS_INTERVAL_S: Final = 1.0
_EXCHANGE_INTERVAL_S: Final = 5.0
_FILTERS_INTERVAL_S: Final = 10.0
_log = logging.getLogger("portolan.coherence")


def make_estimator(settings: CacheSettings) -> TtlEstimator:
    constraints = Constraints(settings.cache_false_positives, settings.cache_invalidations_per_s)
    memory = Memory(margin_s=settings.cache_margin_s)
    max_ttl_s = settings.cache_max_ttl_s
    match settings.cache_estimator:
        case "static":
            return Static()
        case "cate":
            return Cate(CateSettings(max_ttl_s=max_ttl_s, constraints=constraints), memory)
        case "learner":
            return Learner(LearnerSettings(max_ttl_s, constraints=constraints), memory)


@dataclass(eq=False)
class EstimatorUpdates:
    _estimator: TtlEstimator
    _sketch: ServerSketch
    _exchange: MetricsExchange
    _model: Callable[[], RoutingModel]
    _clock: Clock
    _updated_model: RoutingModel | None = field(default=None, init=False)
    _replica: str = field(default_factory=lambda: uuid4().hex, init=False)

    def periodic_tasks(self) -> list[PeriodicTask]:
        return [
            PeriodicTask(
                "updating the TTL limits of classes", _TERMS_INTERVAL_S, self.update_terms
            ),
            PeriodicTask(
                "exchanging rates with other replicas", _EXCHANGE_INTERVAL_S, self.exchange
            ),
            PeriodicTask(
                "measuring how full filters are", _FILTERS_INTERVAL_S, self.measure_filters
            ),
        ]

    async def update_terms(self) -> None:
        model = self._model()
        if model is not self._updated_model:
            self._estimator.set_terms(_terms(model, self._sketch.limits.max_ttl_s))
            self._updated_model = model

    async def exchange(self) -> None:
        entries = []
        for entry in self._estimator.share(self._clock.now()):
            entries.append(entry)
            await asyncio.sleep(0)  # waiting requests are served between two classes
        if entries:
            await self._exchange.publish(self._replica, {"classes": entries})
        await self.merge()

    async def merge(self) -> None:
        """Merge the counts of other replicas, and of an earlier run of this one."""
        documents = await self._exchange.peers(self._replica)
        self._estimator.merge(
            [document.get("classes") for document in documents], self._clock.now()
        )

    async def measure_filters(self) -> None:
        try:
            for partition in self._estimator.regrets:
                snapshot = await self._sketch.snapshot([partition])
                self._estimator.filled(partition, _false_positives(snapshot))
        except SketchUnavailable as error:
            _log.debug("filters were not measured: %s", error)

    async def close(self) -> None:
        await self._exchange.close()


def _terms(model: RoutingModel, max_ttl_s: float) -> Mapping[Partition, Terms]:
    return {
        Partition(database, name): Terms(
            min(route.schema.cache.max_ttl_s, max_ttl_s),
            Weights(route.schema.cache.invalidation_cost, route.schema.cache.stale_cost),
        )
        for database, database_route in model.databases.items()
        for name, route in database_route.classes.items()
        if route.schema.cache.visibility != "none"
    }


def _false_positives(snapshot: FilterSnapshot) -> float:
    if snapshot.revalidate_all:
        return 0.0  # such a filter says nothing about TTLs
    return BloomFilter.from_bits(snapshot.shape, snapshot.bits).false_positive_rate
