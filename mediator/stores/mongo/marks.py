"""Marks of transactions, in the documents of the records that they lie on (`Lockable`).

A record that is absent gets a document, a tombstone without versions, so that whoever would insert
the record meets it.
"""

from __future__ import annotations

from typing import Final

from bson.int64 import Int64
from pymongo.errors import DuplicateKeyError

from mediator.stores.mongo.layout import BOOKKEEPING, Document, Layout, is_live, layout_of, marked
from mediator.stores.mongo.session import Session
from mediator.stores.port import Fragment, Standing

__all__ = ["lock", "standing", "unlock"]

_NEEDED: Final[Document] = BOOKKEEPING | {"_mark": 1}


async def lock(session: Session, fragment: Fragment, id_: str, mark: str, now_us: int) -> Standing:
    """Mark a record that has no mark; `now_us` is the store's clock."""
    layout = layout_of(fragment)
    update: Document = {
        "$set": {"_mark": mark},
        "$setOnInsert": {"tombstone": Int64(now_us), "birth": Int64(0)},
    }
    try:
        document = await session.put(layout, layout.key(id_) | marked(""), update, _NEEDED)
    except DuplicateKeyError:
        # It has a mark, or somebody else has made the record at the same time.
        found = await standing(session, fragment, id_)
        return found if found.mark else await lock(session, fragment, id_, mark, now_us)
    return _standing(layout, document)


async def unlock(session: Session, fragment: Fragment, id_: str, mark: str) -> None:
    """Take a mark away, if it is this one."""
    layout = layout_of(fragment)
    await session.change(layout, layout.key(id_) | marked(mark), {"$unset": {"_mark": ""}})


async def standing(session: Session, fragment: Fragment, id_: str) -> Standing:
    """Tell what stands of a record."""
    layout = layout_of(fragment)
    return _standing(layout, await session.find(layout, id_, _NEEDED))


def _standing(layout: Layout, document: Document | None) -> Standing:
    if document is None:
        return Standing(None, {}, "")
    birth = int(document["birth"]) if is_live(document) else None
    return Standing(birth, layout.decode_versions(document), document.get("_mark", ""))
