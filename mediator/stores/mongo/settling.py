"""Between outbox and feed: what waits in the records, and what leaves them once the feed has it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from pymongo import UpdateOne
from pymongo.asynchronous.collection import AsyncCollection

from mediator.base.offload import is_large, offload
from mediator.stores.mongo.layout import BOOKKEEPING, Document, Layout, layout_of
from mediator.stores.mongo.replay import AT_ONCE, Pulled, replay_of
from mediator.stores.mongo.session import Session
from mediator.stores.mongo.spans import spans
from mediator.stores.mongo.text import ordered_text, plain_text
from mediator.stores.mongo.unrelayed import Unrelayed
from mediator.stores.port import Fragment, Unsettled

__all__ = [
    "SCAN_EVERY_S",
    "SWEEP_EVERY_S",
    "SWEEP_WITHIN_S",
    "index_outboxes",
    "pending",
    "settle",
    "sweep",
]

SWEEP_EVERY_S: Final = 30.0
"""Pause between two sweeps where an index leads to what they look for."""

SCAN_EVERY_S: Final = 600.0
"""Pause where they have to look at every record."""

SWEEP_WITHIN_S: Final = 60.0
"""Longest time of one sweep."""

_ENOUGH: Final = 2**23
"""Characters of entries after which no more records are looked at in one call."""

_WAITING: Final[Document] = {"_pending.0": {"$exists": True}}
_NEEDED: Final[Document] = BOOKKEEPING | {
    "values": 1,
    "_base": 1,
    "_settled": 1,
    "_pending": {"$slice": AT_ONCE + 1},
}


async def pending(
    session: Session, unrelayed: Unrelayed, fragment: Fragment, ids: Sequence[str]
) -> list[Unsettled]:
    """Read the changes that wait in some records; see `PendingChanges.pending`."""
    query = _WAITING | {"_id": {"$in": [ordered_text(id_) for id_ in ids]}}
    replay = replay_of(fragment)
    found: list[Unsettled] = []
    unseen, size = dict.fromkeys(ids), 0
    async for document in session.collection(layout_of(fragment)).find(query, _NEEDED):
        one = await offload(is_large(document.get("values")), replay.unsettled, document)
        found.append(one)
        unseen.pop(one.id, None)
        again = [one.id] if len(document["_pending"]) > AT_ONCE else []
        size += sum(map(len, document["_pending"]))
        if size > _ENOUGH:
            again += unseen
        for id_ in again:
            unrelayed.note_again((fragment.database_id, fragment.class_name, id_))
        if size > _ENOUGH:
            break
    return found


async def sweep(session: Session, fragment: Fragment, after: str | None, limit: int) -> list[str]:
    """Find records in which changes wait; see `PendingChanges.sweep`."""
    layout, ids = layout_of(fragment), list[str]()
    reached = None if after is None else ordered_text(after)
    async for span in spans(session, layout, reached):
        options: Document = {"sort": {"_id": 1}, "limit": limit - len(ids)}
        found = session.collection(layout).find(span | _WAITING, {"_id": 1}, **options)
        ids += [plain_text(document["_id"]) async for document in found]
        if len(ids) == limit:
            break
    return ids


async def settle(session: Session, done: Sequence[Unsettled]) -> None:
    """Remove changes that the feed has; see `PendingChanges.settle`."""
    updates: defaultdict[Layout, list[UpdateOne]] = defaultdict(list)
    for one in done:
        layout = layout_of(one.fragment)
        updates[layout].append(_removal(layout, one.id, one.receipt))
    for layout, requests in updates.items():
        await session.collection(layout).bulk_write(requests, ordered=False)


def _removal(layout: Layout, id_: str, pulled: Pulled) -> UpdateOne:
    """Pull the entries, unless another relay has: then they are not the first any more."""
    sets: Document = {"_settled": pulled.settled}
    update: Document = {"$pullAll": {"_pending": list(pulled.entries)}, "$set": sets}
    if pulled.base is None:
        update["$unset"] = {"_base": ""}
    else:
        sets["_base"] = pulled.base
    return UpdateOne(layout.key(id_) | {"_pending.0": pulled.entries[0]}, update)


async def index_outboxes(collection: AsyncCollection[dict[str, Any]]) -> None:
    """Let the sweep find outboxes that are not empty; writes to other records do not touch it."""
    await collection.create_index(
        {"_id": 1, "creation_version": 1}, name="outbox", partialFilterExpression=_WAITING
    )
