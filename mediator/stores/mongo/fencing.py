"""Fences: a fenced record takes no more writes of a token, however late they come (`Store.fence`).

Every update of a write with a token has, atomically, the condition that the record is not fenced
against it. So write and fence are ordered: the fence reads the versions of an earlier write, and a
later write does not apply. A write that would *create* the record finds the fence's tombstone, and
an insertion fails on its key.
"""

from __future__ import annotations

from bson.int64 import Int64
from pymongo.errors import DuplicateKeyError

from mediator.stores.mongo.layout import BOOKKEEPING, Document, is_fenced, layout_of, unfenced
from mediator.stores.mongo.session import MongoSession
from mediator.stores.port import Fragment

__all__ = ["fence"]


async def fence(
    session: MongoSession, fragment: Fragment, id_: str, token: str, now_us: int
) -> dict[str, int]:
    """Fence a record against the writes of a token, by the store's clock; see `Store.fence`."""
    layout, now = layout_of(fragment), Int64(now_us)
    update: Document = {
        "$push": {"_fences": {"token": token, "time": now}},
        "$setOnInsert": {"tombstone": now, "creation_version": Int64(0), "_bytes": Int64(0)},
    }
    document: Document | None
    try:
        document = await session.put(layout, layout.key(id_) | unfenced(token), update, BOOKKEEPING)
    except DuplicateKeyError:
        # It was fenced before, or a concurrent write has created the record.
        document = await session.find(layout, id_, BOOKKEEPING | {"_fences": 1})
        if not is_fenced(document, token):
            return await fence(session, fragment, id_, token, now_us)
    return layout.decode_versions(document)
