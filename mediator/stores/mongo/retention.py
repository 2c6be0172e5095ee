"""Retention: removes old tombstones, remembered operations and fences.

Collections are gone through in the order of their ids, a few documents at a time: how much a call
looks at depends on how much there is to remove, and not on how much there is.
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
"""Documents that one command looks at."""

REAP_WITHIN_S: Final = 30.0
"""Longest time of one call: many short commands, in the background."""

_PAGES: Final = 10
"""Pages of a collection that one call looks at, at most."""

_Name = tuple[str, str]


class Reaper:
    """Goes through the collections of a namespace; each call goes on where the last one stopped."""

    def __init__(self, client: AsyncMongoClient[Document], namespace: str) -> None:
        self._client = client
        self._prefix = database_prefix(namespace)
        self._reached: dict[_Name, str] = {}
        self._last: _Name = ("", "")

    async def reap(self, before: int, limit: int) -> int:
        """Remove up to `limit` tombstones, remembered operations and fences; return how many.

        What goes is older than `before` (store clock, microseconds).
        """
        names = await self._names()
        self._reached = {name: id_ for name, id_ in self._reached.items() if name in names}
        first = bisect(names, self._last)
        done = 0
        for name in [*names[first:], *names[:first]]:
            if done == limit:
                break
            self._last = name
            done += await self._walk(name, Int64(before), limit - done)
        return done

    async def _names(self) -> list[_Name]:
        """Return the names of all collections, with those of their databases."""
        databases = await self._client.list_database_names()
        names = [
            (database, collection)
            for database in databases
            if database.startswith(self._prefix)
            for collection in await self._client[database].list_collection_names()
        ]
        return sorted(names)

    async def _walk(self, name: _Name, before: Int64, limit: int) -> int:
        """Go through pages up to one in which nothing is due."""
        done = 0
        for _ in range(_PAGES):
            removed = await self._page(name, before, min(PAGE, limit - done))
            done += removed
            if not removed or done == limit:
                break
        return done

    async def _page(self, name: _Name, before: Int64, size: int) -> int:
        collection = self._client[name[0]][name[1]]
        span, end = await span_after(collection, self._reached.pop(name, None), size)
        if end is not None:
            self._reached[name] = end
        return await _delete_tombstones(collection, span, before) + await _trim_lists(
            collection, span, before
        )


async def _delete_tombstones(
    collection: AsyncCollection[Document], span: Document, before: Int64
) -> int:
    # One with changes that are not relayed stays, and one with fences until they are trimmed: a
    # record may have been fenced long after it was deleted.
    empty = {f"{name}.0": {"$exists": False} for name in ("_pending", "_fences")}
    old = {"tombstone": {"$lt": before}} | empty | has_intent("")
    return (await collection.delete_many(span | old)).deleted_count


async def _trim_lists(collection: AsyncCollection[Document], span: Document, before: Int64) -> int:
    """Remove remembered operations and fences."""
    stale: Document = {"time": {"$lt": before}}
    lists = ("_ops", "_fences")
    query = span | {"$or": [{name: {"$elemMatch": stale}} for name in lists]}
    done = await collection.update_many(query, {"$pull": dict.fromkeys(lists, stale)})
    return done.matched_count
