"""What keeps caches coherent, put together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from app.coherence.beginnings import Beginnings
from app.coherence.guard import SketchGuard
from app.coherence.reading import CachedReads
from app.coherence.recovery import Recovery, Settles
from app.settings import CacheSettings, MissingSetting
from mediator.clock import SystemClock
from mediator.control.watch import Duty, Watch
from mediator.placement.routing import RoutingModel
from sketch.bloom import FilterShape
from sketch.port import ServerSketch, SketchLimits
from sketch.redis_server import RedisSketch
from sketch.server import MemorySketch
from sketch.ttl import Static, TtlEstimator

__all__ = ["Caches", "make_caches"]

_MARGIN_OF_A_LAYER_S = 2.0
"""Transit to a cache, and its rounding of times: their part of the margin."""


class Caches:
    """The sketch, and what works with it.

    Args:
        settings: Bounds.
        sketch: The server's sketch.
        estimator: Says for how long answers should live.
    """

    def __init__(
        self, settings: CacheSettings, sketch: ServerSketch, estimator: TtlEstimator
    ) -> None:
        clock = SystemClock()
        answer_s = settings.cache_margin_s - _MARGIN_OF_A_LAYER_S * settings.cache_layers
        self.sketch = sketch
        self.reads = CachedReads(sketch, estimator, answer_s, clock)
        self.guard = SketchGuard(sketch, estimator, clock)
        self._watch = Watch([])

    def beginnings(self, first_word: Callable[[str, str], Awaitable[str]]) -> Beginnings:
        """Return what tells the sketch of new classes; see there."""
        return Beginnings(self.sketch, first_word)

    def start(self, settlement: Settles, model: Callable[[], RoutingModel]) -> None:
        """Begin what goes on in the background."""
        recovery = Recovery(self.sketch, settlement, model)
        self._watch = Watch([Duty("looking after orphaned writes", 1.0, recovery.run)])
        self._watch.start()

    async def stop(self) -> None:
        """End what goes on in the background."""
        await self._watch.stop()

    async def close(self) -> None:
        """Release every connection; there are no more writes."""
        await self.sketch.close()


def make_caches(settings: CacheSettings, coordination_url: str | None) -> Caches | None:
    """Open the sketch where the settings say; None: nothing may be cached."""
    url = settings.sketch_url.get_secret_value() if settings.sketch_url else coordination_url
    if settings.sketch == "off" or (settings.sketch == "auto" and url is None):
        return None
    limits = SketchLimits(
        longest_ttl_s=settings.cache_longest_s,
        margin_s=settings.cache_margin_s,
        layers=settings.cache_layers,
        lease_s=settings.write_lease_s,
    )
    shape = FilterShape(settings.sketch_bits, settings.sketch_hashes)
    if settings.sketch == "memory":
        sketch: ServerSketch = MemorySketch(limits, shape)
    elif url is None:
        raise MissingSetting(
            "There is no Redis for the sketch: set PORTOLAN_SKETCH_URL or"
            " PORTOLAN_COORDINATION_URL, or PORTOLAN_SKETCH=off."
        )
    else:
        sketch = RedisSketch(url, limits, shape)
    return Caches(settings, sketch, Static())
