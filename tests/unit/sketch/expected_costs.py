"""The cost of a read by the model of `sketch.ttl.costs`: the oracle of its best TTL."""

from __future__ import annotations

from math import exp


def relative_cost(
    u: float, reads_per_write: float, invalidation: float, late: float = 1.0
) -> float:
    """Return C(u) in units of a miss; 1 if nothing is cached."""
    r = reads_per_write
    return (1 + invalidation * u + r * late * (u - 1 + exp(-u))) / (1 + r * u)
