"""Refusing scans: the conditions that no index serves, and the indexes that would help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mediator.base.errors import Location, NeedsScan
from mediator.model.filters import Filter, Path, paths_of
from mediator.model.query import OrderBy, Query
from mediator.query.proposed_indexes import proposed_indexes
from mediator.routing.model import ClassRoute
from mediator.schema.tree import Field
from mediator.schema.types import SCALARS

__all__ = ["needs_scan"]


def needs_scan(
    query: Query, route: ClassRoute, own_filter: Filter | None, system: str, *, ordered: bool
) -> NeedsScan:
    # Groups are ordered by their computed results.
    order = () if ordered or query.aggregate is not None else query.order
    unindexed, unserved = _unserved(
        {*paths_of(own_filter), *(level.path for level in order)}, route
    )
    because = _because(unindexed, unserved)
    proposed = proposed_indexes(query, route)
    helping = _advice(order, route, proposed or [(name,) for name in unindexed])
    systems = ", ".join(fragment.system for fragment in route.fragments)
    return NeedsScan(
        f"Every object of {query.class_name} would have to be sent by {systems}: {because}."
        f' What helps: {helping}, another placement, or "allow_scan": true.',
        locations=[Location(f"/{member}", detail) for member, detail in _blamed(query, order)],
        extra={"system": system, "indexes": [list(names) for names in proposed]},
    )


def _unserved(paths: set[Path], route: ClassRoute) -> tuple[list[str], list[str]]:
    """Return the fields that lack an index, and other paths that no index serves."""
    fields = route.schema.fields
    unindexed = {p for p in paths if len(p) == 1 and _lacks_index(fields.get(p[0]))}
    return sorted(p[0] for p in unindexed), sorted(".".join(p) for p in paths - unindexed)


def _lacks_index(field: Field | None) -> bool:
    return field is not None and field.type in SCALARS and not field.index


def _because(unindexed: Sequence[str], unserved: Sequence[str]) -> str:
    has = "has" if len(unindexed) == 1 else "have"
    reasons = [
        f"{' and '.join(unindexed)} {has} no index" if unindexed else "",
        f"as it stands, no index serves {' and '.join(unserved)}" if unserved else "",
    ]
    return "; ".join(filter(None, reasons)) or "there is no condition that an index could serve"


def _advice(order: Sequence[OrderBy], route: ClassRoute, indexes: Sequence[Sequence[str]]) -> str:
    alternatives = " or ".join(" and ".join(names) for names in indexes)
    index = f"an index on {alternatives}" if alternatives else ""
    first = next((level.path for level in order[:1] if not level.descending), None)
    if first and first[0] in route.fragment_of.keys() - route.anchor.fields:
        # Objects without a fragment on the system of the order come first.
        exists = f'{{"exists": "{".".join(first)}"}} in the filter'
        return f"{index} with {exists}" if index else exists
    return index or "a filter that every object found must meet on an indexed field"


def _blamed(query: Query, order: Sequence[OrderBy]) -> Iterator[tuple[str, str]]:
    """Yield the members of the query that no index serves."""
    if query.filter is not None:
        yield "filter", "is served by no index"
    if order:
        yield "order", "is served by no index"
    if query.aggregate is not None and query.filter is None:
        yield "aggregate" if query.count is None else "count", "is over all objects"
