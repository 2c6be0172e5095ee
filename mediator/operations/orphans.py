"""Orphaned writes, which their replica never ended: fenced, and their results read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from mediator.model.guard import CacheKey
from mediator.operations.calls import StoreCalls
from mediator.routing.model import RoutingModel
from mediator.stores.port import RecordKey

__all__ = ["OrphanResolver"]


class OrphanResolver:
    """Finds the result of an orphaned write (docs/protocol.md, "Recovery")."""

    def __init__(self, calls: StoreCalls, model: Callable[[], RoutingModel]) -> None:
        self._calls = calls
        self._model = model

    async def resolve(
        self, database: str, keys: Sequence[CacheKey], token: str
    ) -> dict[CacheKey, int]:
        """Fence the records of a write, and return their versions.

        Once this returns, no part of the write can still take effect; parts that did are in the
        versions. Keys of removed classes or groups are left out, as are those of objects of which
        nothing is known.

        Raises:
            Unavailable: A system does not answer.
        """
        records = self._records(database, keys)
        fenced_versions = await asyncio.gather(
            *(self._calls.fence(fragment, id_, token) for fragment, id_ in records)
        )
        written = set(keys)
        versions = (
            (CacheKey(fragment.class_name, id_, group), version)
            for (fragment, id_), by_group in zip(records, fenced_versions, strict=True)
            for group, version in by_group.items()
        )
        return {key: version for key, version in versions if key in written}

    def _records(self, database: str, keys: Sequence[CacheKey]) -> list[RecordKey]:
        route = self._model().databases.get(database)
        classes = route.classes if route is not None else {}
        records = (
            (fragment, key.id)
            for key in keys
            if (class_route := classes.get(key.class_name)) is not None
            for fragment in class_route.fragments
            if key.group in fragment.groups
        )
        return list(dict.fromkeys(records))
