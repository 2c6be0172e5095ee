"""Writes that nobody ended: what stands of them, once nothing more of them can take effect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from mediator.model.guard import CacheKey
from mediator.operations.calls import StoreCalls
from mediator.routing.model import ClassRoute, RoutingModel
from mediator.stores.port import Fragment

__all__ = ["OrphanResolver"]


class OrphanResolver:
    """Finds out what an orphaned write came to (docs/protocol.md, "Recovery").

    Args:
        calls: Sends store calls.
        model: Returns the routing model in force.
    """

    def __init__(self, calls: StoreCalls, model: Callable[[], RoutingModel]) -> None:
        self._calls = calls
        self._model = model

    async def resolve(
        self, database: str, keys: Sequence[CacheKey], token: str
    ) -> dict[CacheKey, int]:
        """Fence the records of a write, and return the versions that stand.

        Once this returns, nothing of the write takes effect any more; what has, is among the
        versions. Keys of classes or groups that are gone are left out, as are those of objects of
        which nothing is known.

        Raises:
            Unavailable: A system does not answer.
        """
        records = self._records(database, keys)
        stand = await asyncio.gather(
            *(self._calls.fence(fragment, id_, token) for fragment, id_ in records)
        )
        known = (
            (CacheKey(fragment.class_name, id_, group), version)
            for (fragment, id_), versions in zip(records, stand, strict=True)
            for group, version in versions.items()
        )
        return {key: version for key, version in known if key in keys}

    def _records(self, database: str, keys: Sequence[CacheKey]) -> list[tuple[Fragment, str]]:
        """Find the records that hold the keys' groups."""
        route = self._model().databases.get(database)
        if route is None:
            return []
        found: dict[tuple[Fragment, str], None] = {}
        for key in keys:
            fragment = _holder(route.classes.get(key.class_name), key.group)
            if fragment is not None:
                found[fragment, key.id] = None
        return list(found)


def _holder(route: ClassRoute | None, group: str) -> Fragment | None:
    if route is None:
        return None
    return next((f for f in route.fragments if group in f.groups), None)
