"""Walking through all objects of a class."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from mediator.data_plane.port import DataPlane
from mediator.model.operations import Outcome
from mediator.model.query import Position, Query
from mediator.routing.freshness import STRONG

__all__ = ["PAGE", "pages"]

PAGE: Final = 500
"""Objects read at once."""


async def pages(
    plane: DataPlane,
    database: str,
    class_name: str,
    after: str | None = None,
    fields: tuple[str, ...] | None = None,
) -> AsyncIterator[list[Outcome]]:
    """Yield the objects of a class beyond an id, in the order of ids, as the systems hold them.

    Raises:
        Unavailable: A system does not answer.
    """
    while True:
        beyond = None if after is None else Position((), after)
        query = Query(database, class_name, limit=PAGE, after=beyond, fields=fields)
        answer = await plane.query(query, STRONG)
        if answer.items:
            yield [item.outcome for item in answer.items]
        if answer.next is None:
            return
        after = answer.next.id
