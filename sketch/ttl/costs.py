"""What a TTL costs: expected, by a model of reads and writes, and in hindsight.

The model: reads and writes of a key are Poisson processes. A copy is handed out at a miss, with
TTL T. Each write to the key within T invalidates (price a, in units of a miss) and keeps the key
in the filter until T, so that what is read in between goes to the origin (price s for each read: 1,
or less while clients have not seen the write). The next copy is handed out at the first read
after T. With r reads for each write and u = T · (writes in a second), the cost of a read is

    C(u) = (1 + a·u + r·s·(u - 1 + e^-u)) / (1 + r·u)

Its derivative vanishes where  e^u · (1 + (a - r + r·s) / (r²·s)) = 1 + 1/r + u,  and it pays to
keep anything only if r > a. For r large, u is close to √(2/r): T = √(2 / (reads · writes)).
"""

from __future__ import annotations

from functools import lru_cache
from math import exp, expm1, inf, log, sqrt
from typing import Final, NamedTuple

__all__ = ["After", "Belief", "SampleOutcome", "about_best", "best_writes_per_ttl", "cost"]

_ROUNDS: Final = 12
_CLOSE: Final = 1e-3
_MOST: Final = 50.0
_STEPS: Final = 25
"""Ratios that are remembered in a factor of e."""
_LEAST: Final = 1e-6


def best_writes_per_ttl(reads_per_write: float, invalidation: float, late: float = 1.0) -> float:
    """Return the mean number of writes in the best TTL (u).

    It is 0 if nothing should be cached, and infinite if no TTL is too long.

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
    return best_writes_per_ttl(exp(step / _STEPS), exp(price_step / _STEPS), late)


def about_best(reads_per_write: float, invalidation: float, late: float = 1.0) -> float:
    """Return `best_writes_per_ttl` of ratio and price that are off by 2 % at most, quickly."""
    r, a = reads_per_write, invalidation
    if not (_LEAST < r < 1 / _LEAST and _LEAST < a < 1 / _LEAST):
        return best_writes_per_ttl(r, a, late)
    return _of_step(round(log(r) * _STEPS), round(log(a) * _STEPS), round(late, 2))


class Belief(NamedTuple):
    """The basis of a TTL: rates are per second, prices are in units of a miss.

    Attributes:
        best_s: The best TTL by the model, in seconds, beyond `unused_s`.
        unused_s: For how long the copy is not used at first, in seconds.
        reads: Of the key, those included that caches answer.
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
        after: What followed if it was invalidated; None: that was not recorded.
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
    """Return what the time of a copy would have cost with another TTL, in misses.

    One miss begins a copy. What is read before it is used goes to the origin, and so does what is
    read from the first write until the TTL ends; each write until then invalidates. When the first
    write came is known as far as was looked, and so is what followed until the granted TTL ended,
    if that was looked at; beyond, the rates say what to expect. The next copy begins with the first
    read after the end: what one copy costs counts as often as there would have been copies for each
    that there was.
    This is C(u), with a write that was seen in the place of one that is expected.
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
    looked_s = outcome.ttl_s - outcome.seen_s
    beyond_s = max(0.0, ahead_s - looked_s)
    share = (ahead_s - beyond_s) / looked_s
    reads = share * after.reads + beyond_s * belief.reads
    return reads, 1 + share * after.writes + beyond_s * belief.writes
