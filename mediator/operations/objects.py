"""Reading many objects of a class at once."""

from __future__ import annotations

from collections.abc import Sequence

from mediator.operations.calls import StoreCalls
from mediator.operations.merge import merge_records
from mediator.operations.model import Get, Outcome
from mediator.operations.plan import plan_read
from mediator.placement.routing import ClassRoute

__all__ = ["named", "read_objects"]


async def read_objects(
    calls: StoreCalls, route: ClassRoute, resource: Get, ids: Sequence[str]
) -> list[Outcome | None]:
    """Read many objects of a class with one round trip for each system."""
    plans = [plan_read(route, named(resource, id_)) for id_ in ids]
    records = iter(await calls.read([call for plan in plans for call in plan]))
    return [
        merge_records(route, named(resource, id_), [next(records) for _ in plan])
        for id_, plan in zip(ids, plans, strict=True)
    ]


def named(resource: Get, id_: str) -> Get:
    """Return the read of the same resource of another object."""
    return Get(resource.database, resource.class_name, id_, resource.fields)
