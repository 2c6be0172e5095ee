"""Removing what is past its retention: tombstones, remembered operations and fences."""

from __future__ import annotations

from collections.abc import AsyncIterator

from bson.int64 import Int64
from pymongo import AsyncMongoClient, UpdateOne
from pymongo.asynchronous.collection import AsyncCollection

from mediator.stores.mongo.layout import Document, marked
from mediator.stores.mongo.text import database_prefix

__all__ = ["reap"]


async def reap(client: AsyncMongoClient[Document], namespace: str, before: int, limit: int) -> int:
    """Remove up to `limit` tombstones, stale memories and fences of all classes of a namespace.

    Args:
        client: The driver's client.
        namespace: The namespace.
        before: What is older than this goes (store clock, microseconds).
        limit: How many documents are touched at most.

    Returns:
        How many documents were removed or trimmed.
    """
    done = 0
    async for collection in _collections(client, namespace):
        for step in (_bury, _forget, _lift):
            if done < limit:
                done += await step(collection, Int64(before), limit - done)
    return done


async def _collections(
    client: AsyncMongoClient[Document], namespace: str
) -> AsyncIterator[AsyncCollection[Document]]:
    prefix = database_prefix(namespace)
    for name in await client.list_database_names():
        if name.startswith(prefix):
            for collection in await client[name].list_collection_names():
                yield client[name][collection]


async def _bury(collection: AsyncCollection[Document], before: Int64, limit: int) -> int:
    # A tombstone waits for the relay, however long that is away.
    old = {"tombstone": {"$lt": before}, "_pending.0": {"$exists": False}} | marked("")
    ids = [d["_id"] async for d in collection.find(old, {"_id": 1}, limit=limit)]
    # The condition again: a record may have been made anew since.
    removed = await collection.delete_many({"_id": {"$in": ids}, **old}) if ids else None
    return removed.deleted_count if removed else 0


async def _forget(collection: AsyncCollection[Document], before: Int64, limit: int) -> int:
    return await _trim(collection, "_ops", before, limit)


async def _lift(collection: AsyncCollection[Document], before: Int64, limit: int) -> int:
    return await _trim(collection, "_fences", before, limit)


async def _trim(collection: AsyncCollection[Document], name: str, before: Int64, limit: int) -> int:
    stale: Document = {"time": {"$lt": before}}
    query: Document = {name: {"$elemMatch": stale}}
    pull: Document = {"$pull": {name: stale}}
    ids = [d["_id"] async for d in collection.find(query, {"_id": 1}, limit=limit)]
    if not ids:
        return 0
    done = await collection.bulk_write(
        [UpdateOne({"_id": id_}, pull) for id_ in ids], ordered=False
    )
    return done.matched_count
