"""Retention: removes old tombstones, remembered operations and fences.

Collections are traversed in the order of ids, a few documents at a time: the cost of a call depends
on how much there is to remove, not on how much there is.
"""

from __future__ import annotations

from bisect import bisect
from typing import Final

from bson.int64 import Int64
from pymongo import AsyncMongoClient
from pymongo.asynchronous.collection import AsyncCollection

from mediator.stores.mongo.layout import Document, database_prefix, has_intent
from mediator.stores.mongo.read.spans import span_after

__all__ = ["PAGE", "REAP_WITHIN_S", "Reaper"]

PAGE: Final = 500
"""Documents that one command reads."""

REAP_WITHIN_S: Final = 30.0
"""Timeout of one call in seconds: many short commands, in the background."""

_PAGES: Final = 10
"""Maximum number of pages of a collection that one call reads."""

_Name = tuple[str, str]


class Reaper:
    """Traverses the collections of a namespace; each call resumes where the last one stopped."""

    def __init__(self, client: AsyncMongoClient[Document], namespace: str) -> None:
        self._client = client
        self._prefix = database_prefix(namespace)
        self._positions: dict[_Name, str] = {}
        self._last: _Name = ("", "")

    async def reap(self, cutoff: int, limit: int) -> int:
        """Remove up to `limit` tombstones, remembered operations and fences; return how many.

        Entries older than `cutoff` (store clock, microseconds) are removed.
        """
        names = await self._names()
        self._positions = {name: id_ for name, id_ in self._positions.items() if name in names}
        first = bisect(names, self._last)
        removed = 0
        for name in [*names[first:], *names[:first]]:
            if removed == limit:
                break
            self._last = name
            removed += await self._walk(name, Int64(cutoff), limit - removed)
        return removed

    async def _names(self) -> list[_Name]:
        """Return the names of all collections, with their databases."""
        databases = await self._client.list_database_names()
        names = [
            (database, collection)
            for database in databases
            if database.startswith(self._prefix)
            for collection in await self._client[database].list_collection_names()
        ]
        return sorted(names)

    async def _walk(self, name: _Name, cutoff: Int64, limit: int) -> int:
        """Process pages up to one in which nothing is due."""
        total = 0
        for _ in range(_PAGES):
            removed = await self._page(name, cutoff, min(PAGE, limit - total))
            total += removed
            if not removed or total == limit:
                break
        return total

    async def _page(self, name: _Name, cutoff: Int64, size: int) -> int:
        collection = self._client[name[0]][name[1]]
        span, end = await span_after(collection, self._positions.pop(name, None), size)
        if end is not None:
            self._positions[name] = end
        return await _delete_tombstones(collection, span, cutoff) + await _trim_lists(
            collection, span, cutoff
        )


async def _delete_tombstones(
    collection: AsyncCollection[Document], span: Document, cutoff: Int64
) -> int:
    # A tombstone with unrelayed changes stays, and one with fences until they are trimmed: a record
    # can have been fenced long after it was deleted.
    empty = {f"{name}.0": {"$exists": False} for name in ("_pending", "_fences")}
    old = {"tombstone": {"$lt": cutoff}} | empty | has_intent("")
    return (await collection.delete_many(span | old)).deleted_count


async def _trim_lists(collection: AsyncCollection[Document], span: Document, cutoff: Int64) -> int:
    """Remove remembered operations and fences."""
    stale: Document = {"time": {"$lt": cutoff}}
    lists = ("_ops", "_fences")
    query = span | {"$or": [{name: {"$elemMatch": stale}} for name in lists]}
    result = await collection.update_many(query, {"$pull": dict.fromkeys(lists, stale)})
    return result.matched_count
