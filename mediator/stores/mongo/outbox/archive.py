"""Remembered operations that a record has no room for: in a collection beside that of its class.

A server copies the whole document with every write, so a record keeps few of them. A write that
finds no room moves the oldest to documents of their own, before it goes on. They are there before
they leave the record, which has said so since (`_archived`): so whoever reads the record first, and
then the archive, finds every operation. One that takes effect after the record was read raises its
versions, on which a write depends.
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

KEPT: Final = 32
"""Operations, the newest, that stay in the record: most of what is repeated is repeated soon."""

OPERATIONS: Final[Document] = {"_ops": 1, "_archived": 1}
"""The projection that `add_archived` needs."""

_SOME: Final[Document] = {"_ops.0": {"$exists": True}}
_LAYOUTS: Final = 4096


@lru_cache(maxsize=_LAYOUTS)
def archive_of(layout: Layout) -> Layout:
    """Return the layout of the collection in which operations of a class are archived."""
    return Layout(replace(layout.fragment, stored_as=f"{layout.fragment.stored_as}.operations"))


async def make_room(session: MongoSession, layout: Layout, id_: str, *, bytes_: bool) -> bool:
    """Archive the oldest operations of a record if it takes no more; return whether it did.

    Args:
        bytes_: Whether it is for their bytes that it does not: then all of them are archived.
    """
    record = await session.find(layout, id_, {"_ops": 1}, _SOME if bytes_ else NO_ROOM)
    if record is None:
        return False
    operations = record["_ops"] if bytes_ else record["_ops"][:-KEPT]
    oldest = {_name(record["_id"], each["op"]): each for each in operations}
    names: list[Any] = list(oldest)
    steps = [
        {"q": {"_id": name}, "u": {"$setOnInsert": _archived(each)}, "upsert": True}
        for name, each in oldest.items()
    ]
    lookup = Lookup({"_id": {"$in": names}}, {"_id": 1}, len(names))
    found = await session.change_and_find(archive_of(layout), steps, lookup)
    moved = [oldest[document["_id"]]["op"] for document in found]
    # Its bytes have to be counted anew.
    update: Document = {"$set": {"_archived": True}, "$unset": {"_bytes": ""}}
    update["$pull"] = {"_ops": {"op": {"$in": moved}}}
    await session.change(layout, [(layout.key(id_), update)])
    return True


def _archived(operation: Document) -> Document:
    """Return the document of an operation: a tombstone that remembers it, for as long as one is."""
    return {"tombstone": operation["time"], "_ops": [operation]}


async def add_archived(
    session: MongoSession,
    layout: Layout,
    documents: Mapping[str, Document],
    wanted: Iterable[tuple[str, str]],
) -> None:
    """Add those operations to records, as they were read, that were archived.

    Args:
        session: Reads them.
        layout: The layout of the records.
        documents: The records by their stored ids, with `OPERATIONS`.
        wanted: Ids and operations that are looked for.
    """
    records: dict[str, Document] = {}
    for id_, operation in wanted:
        stored_id = ordered_text(id_)
        record = documents.get(stored_id, {})
        if "_archived" in record and all(each["op"] != operation for each in record["_ops"]):
            records[_name(stored_id, operation)] = record
    if records:
        lookup = Lookup({"_id": {"$in": list(records)}}, {"_ops": 1}, len(records))
        for found in await session.find_each(archive_of(layout), lookup):
            records[found["_id"]]["_ops"] += found["_ops"]


def _name(stored_id: str, operation: str) -> str:
    # No id has a control character.
    return f"{stored_id}\n{operation}"
