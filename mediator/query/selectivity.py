"""How many objects a condition is likely to leave, as far as its form tells."""

from __future__ import annotations

from typing import Final

from mediator.model.filters import Between, Compare, Comparison, Exists, Filter, In, Not

__all__ = ["UNBOUND", "spread_of"]

_EQUAL, _BOUNDED, _OPEN = range(3)
UNBOUND: Final = 3
"""The rank of conditions that may leave nearly all objects."""


def spread_of(part: Filter) -> int:
    """Rank how many objects a condition is likely to leave, fewest first."""
    match part:
        case Compare(Comparison.EQ) | In():
            return _EQUAL
        case Between():
            return _BOUNDED
        case Compare(Comparison.NE) | Exists() | Not():
            return UNBOUND
    return _OPEN
