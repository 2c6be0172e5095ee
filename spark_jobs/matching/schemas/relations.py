"""Types of relations between terms, and how they compose (Arnold and Rahm, BTW 2015, figure 3)."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

__all__ = ["INVERSE", "RELATED_COST", "Relation", "compose", "type_confidence"]


class Relation(StrEnum):
    """The relation of the first of two terms to the second.

    `RELATED` is derived from other relations, and never stored.
    """

    EQUAL = "equal"
    IS_A = "is-a"
    INVERSE_IS_A = "inverse is-a"
    HAS_A = "has-a"
    PART_OF = "part-of"
    RELATED = "related"


_E, _I, _V, _H, _P, _R = Relation

INVERSE: Final = {_E: _E, _I: _V, _V: _I, _H: _P, _P: _H, _R: _R}

RELATED_COST: Final = 0.15
"""Subtracted once from the score of a path whose result is `RELATED`."""

_STORED: Final = (_E, _I, _V, _H, _P)
_TABLE: Final = {
    _E: (_E, _I, _V, _H, _P),
    _I: (_I, _I, _R, _H, _P),
    _V: (_V, None, _V, _H, _P),
    _H: (_H, _H, _H, _H, None),
    _P: (_P, _P, _P, _R, _P),
}
"""The composition of a row's relation with a column's, in the order of `_STORED`."""

_CONFIDENCE: Final = {_E: 0.98, _I: 0.96, _V: 0.96, _H: 0.8, _P: 0.8}


def compose(first: Relation, second: Relation) -> Relation | None:
    """Return the composition of two relations; None: there is none.

    `RELATED` can only be the final result of a path, so it has no composition.
    """
    if first is Relation.RELATED:
        return None
    return _TABLE[first][_STORED.index(second)]


def type_confidence(relation: Relation) -> float:
    """Return the confidence in a stored relation of this type, from 0 to 1."""
    return _CONFIDENCE[relation]
