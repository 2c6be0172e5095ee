"""(Δc, p)-atomicity: how likely a purge has arrived in time; docs/papers/cache_sketch.md."""

from __future__ import annotations

from math import hypot
from statistics import NormalDist

import numpy as np

from sketch.instruments.simulate.latency import Latency, Normal

__all__ = ["measured", "probability"]


def probability(bound_s: float, purge: Normal, server_cache: Normal, client_cache: Normal) -> float:
    """Return the probability that no answer of the cache is older than a bound.

    Between the acknowledgement of a write and the moment at which a read of somebody who knows of
    it reaches the cache pass half a round trip to the writer, and half of one to the cache.

    Args:
        bound_s: Δc.
        purge: From the end of a write until the purge has reached the cache.
        server_cache: Half a round trip between origin and cache.
        client_cache: Half a round trip between a client and the cache.
    """
    mean = purge.mean_s - server_cache.mean_s - 2 * client_cache.mean_s
    deviation = hypot(
        purge.deviation_s,
        server_cache.deviation_s,
        client_cache.deviation_s,
        client_cache.deviation_s,
    )
    if deviation == 0:
        return float(mean <= bound_s)
    return NormalDist(mean, deviation).cdf(bound_s)


def measured(
    bound_s: float,
    purge: Latency,
    server_cache: Latency,
    client_cache: Latency,
    random: np.random.Generator,
    draws: int = 100_000,
) -> float:
    """Return the same for any distributions, by drawing from them."""
    known = server_cache.sample(random, draws)
    known = known + client_cache.sample(random, draws) + client_cache.sample(random, draws)
    return float(np.mean(purge.sample(random, draws) - known <= bound_s))
