"""The cost of a TTL: expected, by a model of reads and writes, and in hindsight.

The model: reads and writes of a key are Poisson processes. A copy is handed out at a miss, with
TTL T. Each write to the key within T invalidates (price a, in units of a miss) and keeps the key
in the filter until T, so that reads in between go to the origin (price s for each read: 1, or less
while clients have not seen the write). The next copy is handed out at the first read after T. With
r reads for each write and u = T · (writes in a second), the cost of a read is

    C(u) = (1 + a·u + r·s·(u - 1 + e^-u)) / (1 + r·u)

Its derivative vanishes where  e^u · (1 + (a - r + r·s) / (r²·s)) = 1 + 1/r + u,  and caching pays
only if r > a. For r large, u is close to √(2/r): T = √(2 / (reads · writes)).
"""

from __future__ import annotations

from functools import lru_cache
from math import exp, expm1, inf, log, sqrt
from typing import Final, NamedTuple

__all__ = ["After", "Belief", "SampleOutcome", "about_best", "best_writes_per_ttl", "cost"]

_ROUNDS: Final = 12
_TOLERANCE: Final = 1e-3
_MAX_U: Final = 50.0
_STEPS: Final = 25
"""Cached ratios in a factor of e."""
_MIN_RATIO: Final = 1e-6


def best_writes_per_ttl(reads_per_write: float, invalidation: float, late: float = 1.0) -> float:
    """Return the mean number of writes in the best TTL (u).

    It is 0 if nothing should be cached, and infinite if no TTL is too long.

    Args:
        reads_per_write: Reads, including those that caches answer, for each write (r).
        invalidation: Price of an invalidation in units of a miss (a).
        late: Price of a read while the filter holds the key, in the same units (s).
    """
    r, a, s = reads_per_write, invalidation, late
    if r <= a:
        return 0.0
    excess, scarcity = (a - r + r * s) / (r * r * s) if s > 0 else -inf, 1 / r
    if excess <= -1:
        return inf
    # The solution with the first terms of e^u only is no less than the root. The function is
    # convex, so Newton's method converges from above.
    factor = 1 + excess
    u = (sqrt(max(0.0, excess**2 + 2 * factor * (scarcity - excess))) - excess) / factor
    u = min(u, _MAX_U)
    for _ in range(_ROUNDS):
        rising = factor * exp(u)
        step = (rising - 1 - scarcity - u) / (rising - 1)
        u -= step
        if abs(step) < _TOLERANCE * u:
            break
    return max(u, 0.0)


@lru_cache(maxsize=8_192)
def _best_of_step(step: int, price_step: int, late: float) -> float:
    return best_writes_per_ttl(exp(step / _STEPS), exp(price_step / _STEPS), late)


def about_best(reads_per_write: float, invalidation: float, late: float = 1.0) -> float:
    """Return `best_writes_per_ttl` quickly, of ratio and price that are off by at most 2 %."""
    r, a = reads_per_write, invalidation
    if not (_MIN_RATIO < r < 1 / _MIN_RATIO and _MIN_RATIO < a < 1 / _MIN_RATIO):
        return best_writes_per_ttl(r, a, late)
    return _best_of_step(round(log(r) * _STEPS), round(log(a) * _STEPS), round(late, 2))


class Belief(NamedTuple):
    """The basis of a TTL: rates are per second, prices are in units of a miss.

    Attributes:
        best_s: The best TTL by the model, in seconds, beyond `unused_s`.
        unused_s: How long the copy is not used at first (seconds).
        reads: Of the key, including those that caches answer.
        writes: Of the key; more than 0.
        invalidation: Price of an invalidation.
        late: Price of a read while the filter holds the key.
    """

    best_s: float
    unused_s: float
    reads: float
    writes: float
    invalidation: float
    late: float


class After(NamedTuple):
    """Reads, and further writes, from the write that invalidated a copy until its end."""

    reads: int
    writes: int


class SampleOutcome(NamedTuple):
    """The history of a copy.

    Attributes:
        ttl_s: The TTL that it was granted, in seconds.
        seen_s: The time from then until its key was written, or was read again, in seconds.
        written: Whether it was written; if not, there was no write by then.
        after: The accesses that followed an invalidation; None: not recorded.
    """

    ttl_s: float
    seen_s: float
    written: bool
    after: After | None = None

    @property
    def invalidated(self) -> bool:
        """Whether the copy was fresh when its key was written."""
        return self.written and self.seen_s < self.ttl_s


def cost(ttl_s: float, belief: Belief, outcome: SampleOutcome) -> float:
    """Return the cost that the time of a copy would have had with another TTL, in misses.

    A copy starts with one miss. Reads before it is used go to the origin, and so do reads from the
    first write until the TTL ends; each write until then invalidates. The first write is known if
    it fell in the observed time, and so are the accesses after it until the granted TTL ended, if
    they were recorded; beyond, the rates give the expectation. The next copy starts with the first
    read after the end: the cost of a copy is multiplied by the number of copies that there would
    have been for each actual one. This is C(u), with an observed write in place of an expected one.
    """
    reads, unused_s = belief.reads, belief.unused_s
    misses = 1 + reads * min(unused_s, ttl_s)
    if ttl_s > outcome.seen_s:
        late_reads, writes = _late(ttl_s, belief, outcome)
        misses += belief.invalidation * writes + belief.late * late_reads
    return misses * (1 + reads * outcome.ttl_s) / (1 + reads * ttl_s)


def _late(ttl_s: float, belief: Belief, outcome: SampleOutcome) -> tuple[float, float]:
    """Return reads after the first write, and writes, until the end of a TTL."""
    ahead_s = ttl_s - outcome.seen_s
    expected = ahead_s * belief.writes
    if not outcome.written:
        return belief.reads * (expected + expm1(-expected)) / belief.writes, expected
    if (after := outcome.after) is None:
        late_s = ttl_s - max(outcome.seen_s, belief.unused_s)
        return belief.reads * max(0.0, late_s), 1 + expected
    observed_s = outcome.ttl_s - outcome.seen_s
    beyond_s = max(0.0, ahead_s - observed_s)
    share = (ahead_s - beyond_s) / observed_s
    reads = share * after.reads + beyond_s * belief.reads
    return reads, 1 + share * after.writes + beyond_s * belief.writes
