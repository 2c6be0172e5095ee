"""Filters on objects that are known in part: no, perhaps, or yes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Final, TypeAlias

from mediator.model.conjuncts import paths_of
from mediator.model.effects import Image
from mediator.model.evaluate import compile_filter
from mediator.model.filters import ID, And, Filter, Not, Or

__all__ = ["NO", "YES", "Judge", "Truth", "judge_of"]


class Truth(IntEnum):
    """Whether something holds (Kleene's three values, in their order)."""

    NO = 0
    PERHAPS = 1
    YES = 2


NO: Final = Truth.NO
YES: Final = Truth.YES

Judge: TypeAlias = Callable[[Image], Truth]


def judge_of(filter_: Filter | None) -> Judge:
    """Return what tells whether a filter holds for an object; None holds for all that are there."""
    within = _within(filter_) if filter_ is not None else lambda _: YES

    def judge(image: Image) -> Truth:
        truth = within(image)
        return truth if image.present else min(truth, Truth.PERHAPS)

    return judge


def _within(filter_: Filter) -> Judge:
    test, parts = compile_filter(filter_), _by_parts(filter_)
    names = frozenset(path[0] for path in paths_of(filter_) if path != ID)

    def judge(image: Image) -> Truth:
        if names <= image.known:
            return YES if test(image.lookup) else NO
        return parts(image)

    return judge


def _by_parts(filter_: Filter) -> Judge:
    """Return what judges a filter of which not everything is known."""
    match filter_:
        case And(parts):
            return _least([_within(part) for part in parts])
        case Or(parts):
            return _most([_within(part) for part in parts])
        case Not(part):
            inner = _within(part)
            return lambda image: Truth(Truth.YES - inner(image))
        case _:
            return lambda _: Truth.PERHAPS


def _least(judges: Sequence[Judge]) -> Judge:
    return lambda image: min((judge(image) for judge in judges), default=Truth.YES)


def _most(judges: Sequence[Judge]) -> Judge:
    return lambda image: max((judge(image) for judge in judges), default=Truth.NO)
