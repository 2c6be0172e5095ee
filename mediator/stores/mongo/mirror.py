"""Copies of records of other stores: complete documents that newer ones replace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bson.int64 import Int64
from pymongo import ReplaceOne, UpdateOne
from pymongo.errors import BulkWriteError

from mediator.stores.mongo.errors import DUPLICATE_KEY
from mediator.stores.mongo.layout import LIVE, Document, Layout, layout_of
from mediator.stores.mongo.read.reader import Reader
from mediator.stores.mongo.session import MongoSession
from mediator.stores.port import Fragment, Record, StoreRefused, are_as_new

__all__ = ["absorb", "forget", "replace_copies"]


async def absorb(
    session: MongoSession,
    reader: Reader,
    fragment: Fragment,
    records: Sequence[Record],
) -> list[bool]:
    """Replace copies by newer records; see `Mirror.absorb`."""
    layout = layout_of(fragment)
    requests = [
        ReplaceOne(_older_copy(layout, record), _document(layout, record), upsert=True)
        for record in records
    ]
    unreplaced = await _bulk(session, layout, requests)
    return await are_as_new(fragment, records, unreplaced, reader.read)


async def replace_copies(
    session: MongoSession,
    fragment: Fragment,
    copies: Sequence[Record],
    records: Sequence[Record],
) -> int:
    """Replace copies that are unchanged since they were read; see `Mirror.replace_copies`."""
    layout = layout_of(fragment)
    requests = [
        ReplaceOne(_same_copy(layout, copy), _document(layout, record))
        for copy, record in zip(copies, records, strict=True)
    ]
    reply = await session.collection(layout).bulk_write(requests, ordered=False)
    return reply.matched_count


async def forget(
    session: MongoSession, fragment: Fragment, tombstones: Sequence[tuple[str, int]], now_us: int
) -> None:
    """Replace copies by tombstones; see `Mirror.forget`."""
    layout = layout_of(fragment)
    requests = [
        UpdateOne(
            layout.key(id_) | {"creation_version": {"$lte": Int64(creation_version)}},
            {
                "$set": {"creation_version": Int64(creation_version), "tombstone": Int64(now_us)},
                "$unset": {"values": "", "versions": ""},
            },
            upsert=True,
        )
        for id_, creation_version in tombstones
    ]
    await _bulk(session, layout, requests)


def _older_copy(layout: Layout, record: Record) -> Document:
    """Select the copy if it is older. If it is not, the upsert fails on its key."""
    creation_version = Int64(record.creation_version)
    conditions: Document = LIVE | {"creation_version": creation_version}
    for group, path in layout.version_paths.items():
        # An absent group is older than any version.
        conditions[path] = {"$not": {"$gt": Int64(record.versions.get(group, 0))}}
    return layout.key(record.id) | {
        "$or": [{"creation_version": {"$lt": creation_version}}, conditions]
    }


def _same_copy(layout: Layout, copy: Record) -> Document:
    """Select the live copy with these versions."""
    conditions: Document = LIVE | {"creation_version": Int64(copy.creation_version)}
    for group, path in layout.version_paths.items():
        version = copy.versions.get(group, 0)
        # An absent group has no version; null matches missing fields.
        conditions[path] = Int64(version) if version else {"$in": [None, Int64(0)]}
    return layout.key(copy.id) | conditions


def _document(layout: Layout, record: Record) -> Document:
    return {
        **layout.key(record.id),
        "values": layout.encode_all(record.values),
        "versions": layout.encode_versions(record.versions),
        "creation_version": Int64(record.creation_version),
    }


async def _bulk(session: MongoSession, layout: Layout, requests: Sequence[Any]) -> list[int]:
    """Run upserts; return the positions of those whose record exists and did not match."""
    if not requests:
        return []
    try:
        await session.collection(layout).bulk_write(requests, ordered=False)
    except BulkWriteError as error:
        session.check(error.details)
        errors = error.details["writeErrors"]
        if any(write_error["code"] != DUPLICATE_KEY for write_error in errors):
            raise StoreRefused("the copies were refused") from None
        return sorted(write_error["index"] for write_error in errors)
    return []
