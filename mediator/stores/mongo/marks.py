"""Write intents, in the documents of the records that they lie on (`Lockable`).

A record that is absent gets a document, a tombstone without versions, so that whoever would insert
the record meets it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from bson.int64 import Int64

from mediator.stores.mongo.layout import BOOKKEEPING, LIVE, Document, Layout, is_live, marked
from mediator.stores.mongo.session import Session
from mediator.stores.mongo.text import ordered_text
from mediator.stores.port import Standing

__all__ = ["lock", "standing", "unlock"]

_NEEDED: Final[Document] = BOOKKEEPING | {"_mark": 1}


async def lock(
    session: Session, layout: Layout, ids: Sequence[str], mark: str, now_us: int
) -> dict[str, Standing]:
    """Set an intent on each record that has none; `now_us` is the store's clock."""
    update: Document = {
        "$set": {"_mark": mark},
        "$setOnInsert": {"tombstone": Int64(now_us), "birth": Int64(0)},
    }
    left = list(ids)
    found: dict[str, Standing] = {}
    while left:
        # An upsert that meets another intent, or somebody who makes the record, is a duplicate.
        await session.upsert_each(layout, [layout.key(id_) | marked("") for id_ in left], update)
        found |= await standing(session, layout, left)
        left = [id_ for id_ in left if not found[id_].mark]
    return found


async def unlock(
    session: Session, layout: Layout, ids: Sequence[str], mark: str, *, joint: bool
) -> None:
    """Take an intent away wherever it is this one."""
    query = _among(ids) | marked(mark)
    if joint:
        noted: Document = {"$set": {"_joint": mark}, "$unset": {"_mark": ""}}
        await session.change(layout, query | LIVE, noted)
    await session.change(layout, query, {"$unset": {"_mark": ""}})


async def standing(session: Session, layout: Layout, ids: Sequence[str]) -> dict[str, Standing]:
    """Tell what stands of records."""
    documents = await session.find_each(layout, _among(ids), _NEEDED, len(ids))
    found = {document["_id"]: document for document in documents}
    return {id_: _standing(layout, found.get(ordered_text(id_))) for id_ in ids}


def _among(ids: Sequence[str]) -> Document:
    return {"_id": {"$in": [ordered_text(id_) for id_ in ids]}}


def _standing(layout: Layout, document: Mapping[str, object] | None) -> Standing:
    if document is None:
        return Standing(None, {}, "")
    birth = int(str(document["birth"])) if is_live(document) else None
    return Standing(birth, layout.decode_versions(document), str(document.get("_mark", "")))
