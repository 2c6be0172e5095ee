"""Schemas and conditions for the executor's tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mediator.data_plane.port import DataPlane
from mediator.model.operations import (
    Condition,
    Outcome,
)
from mediator.model.query import Query
from mediator.query.execution import Item
from tests.process.service import field_on

PRESENT = Condition(present=True)


ABSENT = Condition(present=False)


SPREAD = {
    "fields": {
        "title": field_on("postgres"),
        "body": field_on("mongo", "document", group="body"),
        "hits": field_on("redis", "integer", group="hits", index=True),
    }
}


ON_ONE = {"fields": {"title": {"type": "string"}, "hits": {"type": "integer", "index": True}}}


def versions(outcome: Outcome) -> Mapping[str, int | None]:
    return outcome.versions


async def pages(data: DataPlane, query: Query) -> list[Item]:
    """Return the items of all pages of a query."""
    items: list[Item] = []
    while True:
        answer = await data.query(query)
        assert len(answer.items) <= query.limit
        items += answer.items
        if answer.next is None:
            return items
        query = replace(query, after=answer.next)
