"""What PostgreSQL does of a search: the conjuncts that have an exact condition, and the order."""

from __future__ import annotations

from collections.abc import Iterable

from mediator.model.filters import ID, Filter, all_of, conjuncts
from mediator.model.query import OrderBy
from mediator.stores.port import Access, Fragment, Pushdown
from mediator.stores.postgres.search.conditions import served
from mediator.stores.postgres.search.predicates import FilterShape, Predicate, shaped_filter
from mediator.stores.postgres.search.statement import Level, levels

__all__ = ["pushdown"]


def pushdown(fragment: Fragment, filter_: Filter | None, order: tuple[OrderBy, ...]) -> Pushdown:
    """Split a filter into what is done here and what is not, and say how records are found."""
    pushed: list[Filter] = []
    residual: list[Filter] = []
    shapes: list[FilterShape] = []
    for part in conjuncts(filter_):
        shaped = shaped_filter(fragment, part)
        if shaped is None:
            residual.append(part)
        else:
            pushed.append(part)
            shapes.append(shaped.shape)
    chosen = levels(fragment, order)
    by_order = chosen is not None and _leads(fragment, chosen, whole=filter_ is None)
    access = _access(fragment, shapes, by_order=by_order)
    return Pushdown(all_of(pushed), all_of(residual), access, chosen is not None)


def _access(fragment: Fragment, shapes: Iterable[FilterShape], *, by_order: bool) -> Access:
    indexed = [shape for shape in shapes if served(fragment, shape)]
    if any(_names_ids(shape) for shape in indexed):
        return Access.KEYS
    return Access.INDEX if indexed or by_order else Access.SERVER_SCAN


def _names_ids(shape: FilterShape) -> bool:
    return isinstance(shape, Predicate) and shape.field == ID[0] and shape.test in ("eq", "among")


def _leads(fragment: Fragment, order: tuple[Level, ...], *, whole: bool) -> bool:
    """Whether an index gives the order; that of ids helps only where all records are wanted."""
    first, *rest = order
    if not rest:
        return whole
    return rest == [Level(ID[0], first.descending)] and fragment.fields[first.field].index
