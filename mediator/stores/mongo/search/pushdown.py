"""What MongoDB does of a search: the conjuncts with an exact condition, and one level of order."""

from __future__ import annotations

from typing import Final

from mediator.model.filters import (
    ID,
    Between,
    Compare,
    Comparison,
    Filter,
    In,
    Like,
    Or,
    Path,
    all_of,
    conjuncts,
)
from mediator.model.patterns import tokens
from mediator.model.query import OrderBy
from mediator.schema.types import SCALARS, FieldType
from mediator.stores.mongo.layout import layout_of
from mediator.stores.mongo.search.conditions import Conditions
from mediator.stores.port import Access, Fragment, Pushdown
from mediator.stores.port.search import only_level

__all__ = ["pushdown", "sort_level"]

_SORTED: Final = SCALARS - {FieldType.BINARY}
"""Types of which all values are stored in one form, which the server sorts as we do."""


def pushdown(
    fragment: Fragment,
    filter_: Filter | None,
    order: tuple[OrderBy, ...],
    *,
    is_stand_in: bool,
) -> Pushdown:
    """Say what the server would do of a search; see `port.Queryable`."""
    conditions = Conditions(layout_of(fragment), is_stand_in=is_stand_in)
    parts = conjuncts(filter_)
    pushed = [part for part in parts if conditions.of(part) is not None]
    residual = [part for part in parts if conditions.of(part) is None]
    sort = sort_level(fragment, order)
    ordered = sort is not None
    if pushed:
        access = min((_access(fragment, part) for part in pushed), key=list(Access).index)
    elif residual or sort is None:
        access = Access.CLIENT_SCAN
    else:
        access = Access.INDEX if _is_indexed(fragment, sort.path) else Access.SERVER_SCAN
    return Pushdown(all_of(pushed), all_of(residual), access, ordered)


def sort_level(fragment: Fragment, order: tuple[OrderBy, ...]) -> OrderBy | None:
    """Return the one level that an order comes to; None if it has several, or cannot be served.

    Of two levels the server would take null and missing on the first for the same.
    """
    level = only_level(order)
    if level is None or level.path == ID:
        return level
    return level if _is_sorted(fragment, level.path) else None


def _is_sorted(fragment: Fragment, path: Path) -> bool:
    return len(path) == 1 and fragment.fields[path[0]].type in _SORTED


_RANKS: Final = list(Access)
_SEEKING: Final = frozenset(Comparison) - {Comparison.NE}


def _access(fragment: Fragment, part: Filter) -> Access:
    """Say how the server may find what a condition holds for."""
    match part:
        case Or(parts) if parts:
            return max((_access(fragment, each) for each in parts), key=_RANKS.index)
        case Compare(Comparison.EQ, path) | In(path) if path == ID:
            return Access.KEYS
        case Compare(comparison, path) if comparison in _SEEKING:
            indexed = _is_indexed(fragment, path)
        case Between(path) | In(path):
            indexed = _is_indexed(fragment, path)
        case Like(path, pattern):
            indexed = _is_indexed(fragment, path) and _begins_literally(pattern)
        case _:
            indexed = False
    return Access.INDEX if indexed else Access.SERVER_SCAN


def _begins_literally(pattern: str) -> bool:
    return isinstance(next(iter(tokens(pattern)), None), str)


def _is_indexed(fragment: Fragment, path: Path) -> bool:
    return path == ID or (len(path) == 1 and fragment.fields[path[0]].index)
