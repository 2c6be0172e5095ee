"""The archive: a collection for remembered operations that a record has no room for.

A server copies the whole document with every write, so a record keeps few operations. A write that
finds no room first moves the oldest to separate documents. They are archived before they leave the
record, which then records that (`_archived`): so a reader of the record, and then of the archive,
finds every operation. An operation that takes effect after the record was read raises its versions,
on which a write depends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from mediator.stores.mongo.codec import ordered_text
from mediator.stores.mongo.layout import Document, Layout
from mediator.stores.mongo.outbox.entries import NO_ROOM
from mediator.stores.mongo.session import Lookup, MongoSession

__all__ = ["OPERATIONS", "add_archived", "archive_of", "make_room"]

RETAINED_OPERATIONS: Final = 32
"""Number of newest operations that stay in the record: most retries come soon."""

OPERATIONS: Final[Document] = {"_ops": 1, "_archived": 1}
"""The projection that `add_archived` needs."""

_HAS_OPERATIONS: Final[Document] = {"_ops.0": {"$exists": True}}
_LAYOUTS: Final = 4096


@lru_cache(maxsize=_LAYOUTS)
def archive_of(layout: Layout) -> Layout:
    """Return the layout of the collection in which operations of a class are archived."""
    return Layout(replace(layout.fragment, stored_as=f"{layout.fragment.stored_as}.operations"))


async def make_room(session: MongoSession, layout: Layout, id_: str, *, bytes_: bool) -> bool:
    """Archive the oldest operations of a record if it is full; return whether it did.

    Args:
        bytes_: Whether the record is full by bytes: then all operations are archived.
    """
    record = await session.find(layout, id_, {"_ops": 1}, _HAS_OPERATIONS if bytes_ else NO_ROOM)
    if record is None:
        return False
    operations = record["_ops"] if bytes_ else record["_ops"][:-RETAINED_OPERATIONS]
    oldest = {_name(record["_id"], operation["op"]): operation for operation in operations}
    names: list[Any] = list(oldest)
    steps = [
        {"q": {"_id": name}, "u": {"$setOnInsert": _archive_document(operation)}, "upsert": True}
        for name, operation in oldest.items()
    ]
    lookup = Lookup({"_id": {"$in": names}}, {"_id": 1}, len(names))
    documents = await session.change_and_find(archive_of(layout), steps, lookup)
    archived_ids = [oldest[document["_id"]]["op"] for document in documents]
    # Its bytes must be recounted.
    update: Document = {"$set": {"_archived": True}, "$unset": {"_bytes": ""}}
    update["$pull"] = {"_ops": {"op": {"$in": archived_ids}}}
    await session.change(layout, [(layout.key(id_), update)])
    return True


def _archive_document(operation: Document) -> Document:
    """Return the document of an operation: a tombstone, with a tombstone's retention."""
    return {"tombstone": operation["time"], "_ops": [operation]}


async def add_archived(
    session: MongoSession,
    layout: Layout,
    documents: Mapping[str, Document],
    lookups: Iterable[tuple[str, str]],
) -> None:
    """Add archived operations to records as they were read.

    Args:
        session: The session that reads them.
        layout: The layout of the records.
        documents: The records by stored id, with `OPERATIONS`.
        lookups: Ids and operations to look up.
    """
    records: dict[str, Document] = {}
    for id_, operation in lookups:
        stored_id = ordered_text(id_)
        record = documents.get(stored_id, {})
        if "_archived" in record and all(entry["op"] != operation for entry in record["_ops"]):
            records[_name(stored_id, operation)] = record
    if records:
        lookup = Lookup({"_id": {"$in": list(records)}}, {"_ops": 1}, len(records))
        for document in await session.find_each(archive_of(layout), lookup):
            records[document["_id"]]["_ops"] += document["_ops"]


def _name(stored_id: str, operation: str) -> str:
    # Ids contain no control characters.
    return f"{stored_id}\n{operation}"
