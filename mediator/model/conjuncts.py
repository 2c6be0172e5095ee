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
    return tuple(conjunct for part in filter_.operands for conjunct in conjuncts(part))


def all_of(parts: Iterable[Filter]) -> Filter | None:
    """Return the filter that holds where all parts do; None if there are none."""
    together = tuple(parts)
    if len(together) > 1:
        return And(together)
    return together[0] if together else None


def paths_of(filter_: Filter | None) -> frozenset[Path]:
    """Return all paths that a filter mentions."""
    match filter_:
        case None:
            return frozenset()
        case And(parts) | Or(parts):
            return frozenset().union(*map(paths_of, parts))
        case Not(part):
            return paths_of(part)
        case _:
            return frozenset({filter_.path})
