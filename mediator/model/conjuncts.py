"""Taking filters apart: conjuncts, and the paths that a filter mentions."""

from __future__ import annotations

from collections.abc import Iterable

from mediator.model.filters import And, Filter, Not, Or, Path

__all__ = ["all_of", "conjuncts", "paths_of"]


def conjuncts(filter_: Filter | None) -> tuple[Filter, ...]:
    """Return the filters that must all hold, nested conjunctions flattened; none for None."""
    if filter_ is None:
        return ()
    if not isinstance(filter_, And):
        return (filter_,)
    return tuple(conjunct for operand in filter_.operands for conjunct in conjuncts(operand))


def all_of(parts: Iterable[Filter]) -> Filter | None:
    """Return the filter that holds where all parts do; None if there are none."""
    operands = tuple(parts)
    if len(operands) > 1:
        return And(operands)
    return operands[0] if operands else None


def paths_of(filter_: Filter | None) -> frozenset[Path]:
    """Return all paths that a filter mentions."""
    match filter_:
        case None:
            return frozenset()
        case And(operands) | Or(operands):
            return frozenset().union(*map(paths_of, operands))
        case Not(operand):
            return paths_of(operand)
        case _:
            return frozenset({filter_.path})
