"""The life that costs least if reads and writes of a key are Poisson processes.

A copy is handed out at a miss, with life T. Each write to the key within T invalidates (price a,
in units of a miss) and keeps the key in the filter until T, so that what is read in between goes to
the origin (price s for each read: 1, or less while clients have not heard of the write). The next
copy is handed out at the first read after T. With r reads for each write and u = T · (writes in a
second), the cost of a read is

    C(u) = (1 + a·u + r·s·(u - 1 + e^-u)) / (1 + r·u)

Its derivative vanishes where  e^u · (1 + (a - r + r·s) / (r²·s)) = 1 + 1/r + u,  and it pays to
keep anything only if r > a. For r large, u is close to √(2/r): T = √(2 / (reads · writes)).
"""

from __future__ import annotations

from functools import lru_cache
from math import exp, inf, log, sqrt
from typing import Final

__all__ = ["about_best", "best_writes_per_life", "relative_cost"]

_ROUNDS: Final = 12
_CLOSE: Final = 1e-3
_MOST: Final = 50.0
_STEPS: Final = 25
"""Ratios that are remembered in a factor of e."""
_LEAST: Final = 1e-6


def best_writes_per_life(reads_per_write: float, invalidation: float, late: float = 1.0) -> float:
    """Return the mean number of writes in the best life (u).

    It is 0 if nothing should be kept, and infinite if no life is too long.

    Args:
        reads_per_write: Reads, those included that caches answer, for each write (r).
        invalidation: Price of an invalidation in units of a miss (a).
        late: Price of a read while the filter holds the key, in the same units (s).
    """
    r, a, s = reads_per_write, invalidation, late
    if r <= a:
        return 0.0
    excess, scarcity = (a - r + r * s) / (r * r * s) if s > 0 else -inf, 1 / r
    if excess <= -1:
        return inf
    # With the first terms of e^u instead of e^u: no less than what is looked for. The function is
    # convex, so that Newton's method comes from above and cannot go astray.
    factor = 1 + excess
    u = (sqrt(max(0.0, excess**2 + 2 * factor * (scarcity - excess))) - excess) / factor
    u = min(u, _MOST)
    for _ in range(_ROUNDS):
        rising = factor * exp(u)
        step = (rising - 1 - scarcity - u) / (rising - 1)
        u -= step
        if abs(step) < _CLOSE * u:
            break
    return max(u, 0.0)


@lru_cache(maxsize=8_192)
def _of_step(step: int, price_step: int, late: float) -> float:
    return best_writes_per_life(exp(step / _STEPS), exp(price_step / _STEPS), late)


def about_best(reads_per_write: float, invalidation: float, late: float = 1.0) -> float:
    """Return `best_writes_per_life` of ratio and price off by two per cent at most, quickly."""
    r, a = reads_per_write, invalidation
    if not (_LEAST < r < 1 / _LEAST and _LEAST < a < 1 / _LEAST):
        return best_writes_per_life(r, a, late)
    return _of_step(round(log(r) * _STEPS), round(log(a) * _STEPS), round(late, 2))


def relative_cost(
    u: float, reads_per_write: float, invalidation: float, late: float = 1.0
) -> float:
    """Return the cost of a read, C(u), in units of a miss; 1 if nothing is kept."""
    r = reads_per_write
    return (1 + invalidation * u + r * late * (u - 1 + exp(-u))) / (1 + r * u)
