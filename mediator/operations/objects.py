"""Reading many objects of a class at once."""

from __future__ import annotations

from collections.abc import Sequence

from mediator.model.operations import Get, Outcome
from mediator.operations.calls import StoreCalls
from mediator.operations.merge import merge_fragments
from mediator.routing.fragments import resource_of
from mediator.routing.model import ClassRoute
from mediator.stores.port import Read

__all__ = ["read_objects"]


async def read_objects(
    calls: StoreCalls, route: ClassRoute, resource: Get, ids: Sequence[str]
) -> list[Outcome | None]:
    """Read many objects of a class with one round trip for each system."""
    whole = resource_of(route, resource.fields)
    records = iter(
        await calls.read([Read(f, id_, names) for id_ in ids for f, names in whole.fragments])
    )
    return [
        merge_fragments(route, whole, id_, [next(records) for _ in whole.fragments]) for id_ in ids
    ]
