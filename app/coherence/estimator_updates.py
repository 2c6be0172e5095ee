"""What the TTL estimator needs to know from time to time, off the path of requests.

It counts reads and writes where they happen, which takes microseconds and no input or output.
Every few seconds it gets the terms of classes, how full their filters are, and what other replicas
have seen. All of that only makes TTLs better: where the Redis by which replicas exchange it does
not answer, each goes by what it sees itself.
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
"""Of the exchange between replicas, in the Redis of the sketch."""

_TERMS_S: Final = 1.0
_EXCHANGE_S: Final = 5.0
_FILTERS_S: Final = 10.0
_log = logging.getLogger("portolan.coherence")


def make_estimator(settings: CacheSettings) -> TtlEstimator:
    constraints = Constraints(settings.cache_false_positives, settings.cache_invalidations_per_s)
    memory = Memory(margin_s=settings.cache_margin_s)
    longest_s = settings.cache_longest_s
    match settings.cache_estimator:
        case "static":
            return Static()
        case "cate":
            return Cate(CateSettings(longest_s=longest_s, constraints=constraints), memory)
        case "learner":
            return Learner(LearnerSettings(longest_s, constraints=constraints), memory)


@dataclass(eq=False)
class EstimatorUpdates:
    _estimator: TtlEstimator
    _sketch: ServerSketch
    _exchange: MetricsExchange
    _model: Callable[[], RoutingModel]
    _clock: Clock
    _updated: RoutingModel | None = field(default=None, init=False)
    _replica: str = field(default_factory=lambda: uuid4().hex, init=False)

    def periodic_tasks(self) -> list[PeriodicTask]:
        return [
            PeriodicTask("updating the TTL limits of classes", _TERMS_S, self.update_terms),
            PeriodicTask("exchanging rates with other replicas", _EXCHANGE_S, self.exchange),
            PeriodicTask("measuring how full filters are", _FILTERS_S, self.measure_filters),
        ]

    async def update_terms(self) -> None:
        model = self._model()
        if model is not self._updated:
            self._estimator.set_terms(_terms(model, self._sketch.limits.longest_ttl_s))
            self._updated = model

    async def exchange(self) -> None:
        entries = []
        for entry in self._estimator.share(self._clock.now()):
            entries.append(entry)
            await asyncio.sleep(0)  # requests that wait are served between two classes
        if entries:
            await self._exchange.publish(self._replica, {"classes": entries})
        await self.merge()

    async def merge(self) -> None:
        """Merge what the other replicas have seen, and what an earlier run of this one had."""
        others = await self._exchange.peers(self._replica)
        self._estimator.merge([other.get("classes") for other in others], self._clock.now())

    async def measure_filters(self) -> None:
        try:
            for partition in self._estimator.regrets:
                snapshot = await self._sketch.snapshot([partition])
                self._estimator.filled(partition, _false_positives(snapshot))
        except SketchUnavailable as error:
            _log.debug("filters were not measured: %s", error)

    async def close(self) -> None:
        await self._exchange.close()


def _terms(model: RoutingModel, longest_s: float) -> Mapping[Partition, Terms]:
    return {
        Partition(database, name): Terms(
            min(route.schema.cache.max_ttl_s, longest_s),
            Weights(route.schema.cache.invalidation_cost, route.schema.cache.stale_cost),
        )
        for database, of in model.databases.items()
        for name, route in of.classes.items()
        if route.schema.cache.visibility != "none"
    }


def _false_positives(snapshot: FilterSnapshot) -> float:
    if snapshot.revalidate_all:
        return 0.0  # says nothing of TTLs
    return BloomFilter.from_bits(snapshot.shape, snapshot.bits).false_positive_rate
