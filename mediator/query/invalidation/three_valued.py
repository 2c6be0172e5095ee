"""Filters on objects that are known in part, in Kleene's three-valued logic (as SQL's)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TypeAlias

from mediator.model.conjuncts import paths_of
from mediator.model.effects import Image
from mediator.model.evaluate import compile_filter
from mediator.model.filters import ID, And, Filter, Not, Or

__all__ = ["ThreeValuedTest", "Truth", "compile_three_valued"]


class Truth(IntEnum):
    """Whether something holds; in this order AND is the minimum and OR the maximum."""

    FALSE = 0
    UNKNOWN = 1
    TRUE = 2


ThreeValuedTest: TypeAlias = Callable[[Image], Truth]


def compile_three_valued(filter_: Filter | None) -> ThreeValuedTest:
    """Return what tells whether a filter holds for an object; None holds for all that are there."""
    holds = _holds(filter_) if filter_ is not None else lambda _: Truth.TRUE

    def test(image: Image) -> Truth:
        truth = holds(image)
        return truth if image.present else min(truth, Truth.UNKNOWN)

    return test


def _holds(filter_: Filter) -> ThreeValuedTest:
    on_known, on_partial = compile_filter(filter_), _on_partial(filter_)
    names = frozenset(path[0] for path in paths_of(filter_) if path != ID)

    def holds(image: Image) -> Truth:
        if names <= image.known:
            return Truth.TRUE if on_known(image.lookup) else Truth.FALSE
        return on_partial(image)

    return holds


def _on_partial(filter_: Filter) -> ThreeValuedTest:
    """Return the test of a filter for objects of which it mentions unknown fields."""
    match filter_:
        case And(operands):
            return _least([_holds(operand) for operand in operands])
        case Or(operands):
            return _most([_holds(operand) for operand in operands])
        case Not(operand):
            inner = _holds(operand)
            return lambda image: Truth(Truth.TRUE - inner(image))
        case _:
            return lambda _: Truth.UNKNOWN


def _least(tests: Sequence[ThreeValuedTest]) -> ThreeValuedTest:
    return lambda image: min((test(image) for test in tests), default=Truth.TRUE)


def _most(tests: Sequence[ThreeValuedTest]) -> ThreeValuedTest:
    return lambda image: max((test(image) for test in tests), default=Truth.FALSE)
