"""(Δc, p)-atomicity as in the paper, against samples of the simulator's distributions."""

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

    A read by a client that observed the acknowledgement of a write reaches the cache half a round
    trip to the writer, and half of one to the cache, after that acknowledgement.

    Args:
        bound_s: Δc.
        purge: From the end of a write until its purge has reached the cache; normal, as are all.
        server_cache: Half a round trip between origin and cache.
        client_cache: Half a round trip between a client and the cache.
    """
    terms = [latency.numbers for latency in (purge, server_cache, client_cache, client_cache)]
    means, deviations = zip(*terms, strict=True)
    mean, deviation = means[0] - sum(means[1:]), hypot(*deviations)
    if deviation == 0:
        return float(mean <= bound_s)
    return NormalDist(mean, deviation).cdf(bound_s)


def sampled_probability(
    bound_s: float,
    purge: Latency,
    server_cache: Latency,
    client_cache: Latency,
    random: np.random.Generator,
    draws: int = 100_000,
) -> float:
    """Return the same probability for any distributions, by sampling them."""
    elapsed = server_cache.sample(random, draws)
    elapsed = elapsed + client_cache.sample(random, draws) + client_cache.sample(random, draws)
    return float(np.mean(purge.sample(random, draws) - elapsed <= bound_s))


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
    estimate = sampled_probability(bound_ms / 1e3, purge, server, client, random)
    assert estimate == pytest.approx(expected, abs=6e-3)


def test_purges_without_deviation() -> None:
    constant, zero = parse("normal(10, 0)"), parse("normal(0, 0)")
    assert probability(0.0, constant, zero, zero) == 0
    assert probability(0.010, constant, zero, zero) == 1
