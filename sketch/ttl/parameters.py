"""Slope and longest TTL of one class, set to what would have cost least."""

from __future__ import annotations

from collections.abc import Iterable
from math import cosh, inf, log, log2
from typing import Final

from sketch.ttl.costs import Belief, Outcome, cost

__all__ = ["LearnedParameters", "Parameter"]

_FINE: Final = 2**0.5
_STEEPEST: Final = 4
"""So many fine steps the slope may go either way, to 4 and to a quarter: evidence may correct the
model, not replace it."""

_COARSE: Final = 2.0
_SHORTEST_S: Final = 1.0
"""The longest TTL is never shorter."""

_TRUST: Final = 100.0
"""At first it takes evidence of so many misses to overrule the model's slope."""

_CAREFREE: Final = 1.0
"""There is no prior for the longest TTL: little evidence shortens it."""


class Parameter:
    """A positive number, chosen from a few by what each of them would have cost.

    Costs are sums in which what is older counts for less. They begin as the model has them: near
    the best TTL T of many reads, a TTL of m · T costs (m + 1/m)/2 times as much; it takes `trust`
    misses to overrule them.

    Attributes:
        value: What it is set to: the cheapest candidate, or between it and the next one.
        candidates: What it can be, rising; each is the one before by the factor.
    """

    __slots__ = ("_costs", "_factor", "_keep", "candidates", "value")

    def __init__(
        self, first: float, factor: float, below: int, above: int, copies: int, trust: float
    ) -> None:
        steps = range(-below, above + 1)
        self.candidates = tuple(first * factor**step for step in steps)
        self.value = first
        self._factor = factor
        self._keep = 1 - 1 / copies if copies > 0 else None
        self._costs = [trust * cosh(step * log(factor)) for step in steps]

    def adjust(self, costs: Iterable[float]) -> None:
        """Take in what a copy would have cost with each candidate, in misses."""
        keep = self._keep
        if keep is None:
            return
        self._costs = [
            before * keep + of_copy for before, of_copy in zip(self._costs, costs, strict=True)
        ]
        best = self._costs.index(min(self._costs))
        self.value = self.candidates[best] * self._factor ** _vertex(self._costs, best)


def _vertex(costs: list[float], best: int) -> float:
    """Return where the parabola through the least cost and its neighbours is least, in steps."""
    if not 0 < best < len(costs) - 1:
        return 0.0
    before, least, after = costs[best - 1 : best + 2]
    bend = before - 2 * least + after
    return (before - after) / (2 * bend) if bend > 0 else 0.0


class LearnedParameters:
    """What is learned of one class.

    The time of the first write after a grant is seen whatever the TTL was. So each copy shows what
    every other slope, or longest TTL, would have cost in its place: none has to be tried.
    That is choosing with full information, where the leader is followed without exploring
    (Hannan, 1957).

    Attributes:
        slope: By what the model's TTLs are multiplied.
        longest_s: The longest TTL (TTL_max).
    """

    __slots__ = ("longest_s", "slope")

    def __init__(self, longest_s: float, copies: int) -> None:
        self.slope = Parameter(1.0, _FINE, _STEEPEST, _STEEPEST, copies, _TRUST)
        self.longest_s = Parameter(longest_s, _COARSE, _halvings(longest_s), 0, copies, _CAREFREE)

    def adjust(self, belief: Belief, outcome: Outcome) -> None:
        """Set both by what became of a copy.

        The slope answers for when writes come, if rates are what they are believed to be; the
        longest TTL for what it costs if they turn out to be others.
        """
        best_s, unused_s = belief.best_s, belief.unused_s
        slope, longest_s = self.slope.value, self.longest_s.value
        wanted_s = slope * best_s + unused_s
        ttls_s = [min(wanted_s, each) for each in self.longest_s.candidates]
        self.longest_s.adjust(cost(ttl_s, belief, outcome) for ttl_s in ttls_s)
        believed = outcome._replace(after=None)
        ttls_s = [min(each * best_s + unused_s, longest_s) for each in self.slope.candidates]
        self.slope.adjust(cost(ttl_s, belief, believed) for ttl_s in ttls_s)


def _halvings(longest_s: float) -> int:
    return int(log2(longest_s / _SHORTEST_S)) if _SHORTEST_S < longest_s < inf else 0
