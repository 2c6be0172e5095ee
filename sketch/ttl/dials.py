"""Slope and longest life of one class, turned by what became of its copies."""

from __future__ import annotations

from math import exp
from typing import Final

from sketch.ttl.history import Proposal

__all__ = ["Dial", "Dials"]

_STEEPEST: Final = 4.0
"""The slope stays between this and its inverse: evidence may correct the model, not replace it."""

_SHORTEST_S: Final = 1.0
"""The longest life is never shorter."""


class Dial:
    """A positive number that is turned on the scale of its logarithm.

    Args:
        value: At first.
        least: It is never below this.
        most: It is never above this.
    """

    __slots__ = ("_least", "_most", "value")

    def __init__(self, value: float, least: float, most: float) -> None:
        self.value = value
        self._least = least
        self._most = most

    def turn(self, by: float) -> None:
        """Multiply it by e to this power."""
        self.value = min(max(self.value * exp(by), self._least), self._most)


class Dials:
    """What is learned of one class.

    A life is right if as many of the copies that get it are invalidated as the model asks for (its
    target). Each copy is evidence: if it was invalidated its life was too long, and weighs
    1 - target; if it was not its life was too short, and weighs target. Where both balance the
    share of the invalidated is the target, whatever the distribution of writes (Robbins and Monro,
    1951, for a quantile).

    Args:
        longest_s: The longest life that may be granted (seconds).
        step: How far one copy turns a dial.

    Attributes:
        slope: By what the model's lives are multiplied.
        longest_s: The longest life (TTL_max).
    """

    __slots__ = ("_step", "longest_s", "slope")

    def __init__(self, longest_s: float, step: float) -> None:
        self._step = step
        self.slope = Dial(1.0, 1 / _STEEPEST, _STEEPEST)
        self.longest_s = Dial(longest_s, min(_SHORTEST_S, longest_s), longest_s)

    def settle(self, trial: Proposal, *, invalidated: bool) -> None:
        """Turn what decided about a life by what it led to."""
        dial = self.longest_s if trial.capped else self.slope
        dial.turn(self._step * (trial.target - invalidated))
