"""What matching a write with registered queries costs, counted before it is done.

The unit is about a microsecond. What is counted here is never measured: a write finds the same
results whatever else the machine does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mediator.model.effects import Image
from mediator.model.filters import And, Contains, Filter, In, Like, Not, Or, Path
from mediator.model.patterns import Wildcard, tokens

__all__ = ["MAX_MATCH_COST", "Cost", "MatchBudget", "cost_of"]

MAX_MATCH_COST: Final = 10_000
"""Units that matching one write may cost."""

_PATTERN: Final = 50
"""A pattern that is no longer cached is compiled first."""

_STEP: Final = 5
"""What searching takes: a pattern, for 1,000 characters and each of its wildcards; a list, for each
element."""


class MatchBudget:
    """The cost that matching one write may have."""

    def __init__(self, most: int = MAX_MATCH_COST) -> None:
        self._left = most

    def spend(self, units: int) -> bool:
        """Take units; False if there are no longer as many."""
        self._left -= units
        return self._left >= 0


@dataclass(frozen=True, slots=True)
class Cost:
    """What it costs to evaluate a filter.

    Attributes:
        fixed: Units for any object.
        searched: Paths whose values are searched, with the units for 1,000 characters.
    """

    fixed: int
    searched: tuple[tuple[Path, int], ...]

    def of(self, image: Image | None) -> int:
        """Return the units for one object."""
        if image is None:
            return 0
        units = self.fixed
        for path, per in self.searched:
            units += _length(image, path) * per // 1_000
        return units


def _length(image: Image, path: Path) -> int:
    value = image.lookup(path) if image.knows(path) else None
    if isinstance(value, list):
        return 1_000 * len(value)
    return len(value) if isinstance(value, str) else 0


def cost_of(filter_: Filter | None) -> Cost:
    """Return what it costs to evaluate a filter."""
    match filter_:
        case None:
            return Cost(1, ())
        case And(operands) | Or(operands):
            costs = [cost_of(operand) for operand in operands]
            searched = tuple(each for cost in costs for each in cost.searched)
            return Cost(1 + sum(cost.fixed for cost in costs), searched)
        case Not(operand):
            return cost_of(operand)
        case Like(path, pattern):
            wildcards = sum(isinstance(token, Wildcard) for token in tokens(pattern))
            return Cost(_PATTERN, ((path, _STEP * (1 + wildcards)),))
        case Contains(path):
            return Cost(1, ((path, _STEP),))
        case In(_, values):
            return Cost(1 + len(values) // 100, ())
    return Cost(1, ())
