"""What a copy would have cost with another life, by what became of it."""

from __future__ import annotations

from math import expm1
from typing import NamedTuple

__all__ = ["Belief", "Outcome", "cost"]


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


class Outcome(NamedTuple):
    """What became of a copy.

    Attributes:
        life_s: The life that it was granted, in seconds.
        seen_s: The time from then until its key was written, or was asked for again, in seconds.
        written: Whether it was written; if not, nobody had written it by then.
    """

    life_s: float
    seen_s: float
    written: bool

    @property
    def invalidated(self) -> bool:
        """Whether the copy was alive when its key was written."""
        return self.written and self.seen_s < self.life_s


def cost(life_s: float, belief: Belief, outcome: Outcome) -> float:
    """Return what the time of a copy would have cost with another life, in misses.

    One miss begins a copy. What is read before it is used goes to the origin, and so does what is
    read from the first write until the end of the life; each write until then invalidates. Only
    when the first write came depends on chance, and that is known as far as was looked; beyond, and
    for reads, the rates say what to expect. The next copy begins with the first read after the end:
    what one copy costs counts as often as there would have been copies for each that there was.
    This is the cost of `optimum`, with a write that was seen in the place of one that is expected.

    Args:
        life_s: The other life, in seconds.
        belief: What the life that was granted was chosen by.
        outcome: What became of the copy.
    """
    reads, unused_s = belief.reads, belief.unused_s
    misses = 1 + reads * min(unused_s, life_s)
    ahead_s = life_s - outcome.seen_s
    if ahead_s > 0:
        writes = ahead_s * belief.writes
        if outcome.written:
            late_s = life_s - max(outcome.seen_s, unused_s)
            writes += 1
        else:
            late_s = (writes + expm1(-writes)) / belief.writes
        misses += belief.invalidation * writes + belief.late * reads * max(0.0, late_s)
    return misses * (1 + reads * outcome.life_s) / (1 + reads * life_s)
