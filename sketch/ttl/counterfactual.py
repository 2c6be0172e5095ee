"""What a copy would have cost with another life, by what became of it."""

from __future__ import annotations

from math import expm1
from typing import NamedTuple

__all__ = ["After", "Belief", "Outcome", "cost"]


class Belief(NamedTuple):
    """What a life was chosen by: rates are those of a second, prices are in units of a miss.

    Attributes:
        best_s: The best life by the model, in seconds, beyond `unused_s`.
        unused_s: For how long nobody uses the copy at first, in seconds.
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
    """What reached the origin from the write that a copy was invalidated by until its end.

    Attributes:
        reads: Of the key: while the filter held it, all had to.
        writes: Further ones.
    """

    reads: int
    writes: int


class Outcome(NamedTuple):
    """What became of a copy.

    Attributes:
        life_s: The life that it was granted, in seconds.
        seen_s: The time from then until its key was written, or was asked for again, in seconds.
        written: Whether it was written; if not, nobody had written it by then.
        after: What followed if it was invalidated; None: that was not looked at.
    """

    life_s: float
    seen_s: float
    written: bool
    after: After | None = None

    @property
    def invalidated(self) -> bool:
        """Whether the copy was alive when its key was written."""
        return self.written and self.seen_s < self.life_s


def cost(life_s: float, belief: Belief, outcome: Outcome) -> float:
    """Return what the time of a copy would have cost with another life, in misses.

    One miss begins a copy. What is read before it is used goes to the origin, and so does what is
    read from the first write until the end of the life; each write until then invalidates. When
    the first write came is known as far as was looked, and so is what followed until the end of the
    life that was granted, if that was looked at; beyond, the rates say what to expect. The next
    copy begins with the first read after the end: what one copy costs counts as often as there
    would have been copies for each that there was.
    This is the cost of `optimum`, with a write that was seen in the place of one that is expected.

    Args:
        life_s: The other life, in seconds.
        belief: What the life that was granted was chosen by.
        outcome: What became of the copy.
    """
    reads, unused_s = belief.reads, belief.unused_s
    misses = 1 + reads * min(unused_s, life_s)
    if life_s > outcome.seen_s:
        late_reads, writes = _late(life_s, belief, outcome)
        misses += belief.invalidation * writes + belief.late * late_reads
    return misses * (1 + reads * outcome.life_s) / (1 + reads * life_s)


def _late(life_s: float, belief: Belief, outcome: Outcome) -> tuple[float, float]:
    """Return reads after the first write, and writes, until the end of a life."""
    ahead_s = life_s - outcome.seen_s
    expected = ahead_s * belief.writes
    if not outcome.written:
        return belief.reads * (expected + expm1(-expected)) / belief.writes, expected
    if (after := outcome.after) is None:
        late_s = life_s - max(outcome.seen_s, belief.unused_s)
        return belief.reads * max(0.0, late_s), 1 + expected
    looked_s = outcome.life_s - outcome.seen_s
    beyond_s = max(0.0, ahead_s - looked_s)
    share = (ahead_s - beyond_s) / looked_s
    reads = share * after.reads + beyond_s * belief.reads
    return reads, 1 + share * after.writes + beyond_s * belief.writes
