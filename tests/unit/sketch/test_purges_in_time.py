"""(Δc, p)-atomicity as the paper has it, against draws from the simulator's distributions."""

from __future__ import annotations

from math import hypot
from statistics import NormalDist

import numpy as np
import pytest

from sketch.instruments.simulate.latency import Latency, parse


def probability(
    bound_s: float, purge: Latency, server_cache: Latency, client_cache: Latency
) -> float:
    """Return the probability that no answer of the cache is older than a bound.

    Between the acknowledgement of a write and the moment at which a read of a client that observed
    it reaches the cache pass half a round trip to the writer, and half of one to the cache.

    Args:
        bound_s: Δc.
        purge: Normal, as are all: from the end of a write until its purge has reached the cache.
        server_cache: Half a round trip between origin and cache.
        client_cache: Half a round trip between a client and the cache.
    """
    terms = [each.numbers for each in (purge, server_cache, client_cache, client_cache)]
    means, deviations = zip(*terms, strict=True)
    mean, deviation = means[0] - sum(means[1:]), hypot(*deviations)
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


@pytest.mark.parametrize(
    ("bound_ms", "expected"), [(0, 0.854), (5, 0.940), (10, 0.980), (20, 0.9989)]
)
def test_purges_in_time(bound_ms: float, expected: float) -> None:
    """docs/papers/cache_sketch.md, section 4."""
    purge, server, client = (
        parse("normal(80, 10)"),
        parse("normal(86.54, 0)"),
        parse("normal(2, 0)"),
    )
    assert probability(bound_ms / 1e3, purge, server, client) == pytest.approx(expected, abs=6e-4)
    random = np.random.default_rng(1)
    drawn = measured(bound_ms / 1e3, purge, server, client, random)
    assert drawn == pytest.approx(expected, abs=6e-3)


def test_purges_without_deviation() -> None:
    still, at_once = parse("normal(10, 0)"), parse("normal(0, 0)")
    assert probability(0.0, still, at_once, at_once) == 0
    assert probability(0.010, still, at_once, at_once) == 1
