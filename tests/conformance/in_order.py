"""Searches ordered by one field."""

from __future__ import annotations

from typing import Any

from mediator.model.query import OrderBy, Position
from mediator.stores.port import Fragment, Queryable, Record, SearchRequest

__all__ = ["in_order"]


async def in_order(
    store: Queryable,
    fragment: Fragment,
    name: str,
    *,
    descending: bool = False,
    limit: int = 100,
    after: tuple[Any, str] | None = None,
    fields: tuple[str, ...] | None = None,
) -> list[Record]:
    """Return records ordered by a field, after a value and an id."""
    position = None if after is None else Position((after[0],), after[1])
    order = (OrderBy((name,), descending),)
    request = SearchRequest(fragment, None, order, limit, position, fields=fields)
    return list((await store.find(request)).records)
