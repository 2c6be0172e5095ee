"""The outboxes of records: reads the changes that wait, and removes those that are relayed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from typing import Final, TypeAlias

from pymongo import UpdateOne

from mediator.base.offload import is_large, offload
from mediator.stores.mongo.codec import ordered_text, plain_text
from mediator.stores.mongo.layout import BOOKKEEPING, Document, Layout, among, layout_of
from mediator.stores.mongo.outbox.replay import AT_ONCE, Acknowledgement, replay_of
from mediator.stores.mongo.read.spans import spans
from mediator.stores.mongo.session import MongoSession
from mediator.stores.port import Fragment, UnrelayedChanges, Write

__all__ = [
    "SCAN_EVERY_S",
    "SWEEP_EVERY_S",
    "SWEEP_WITHIN_S",
    "WAITING",
    "RecentWrites",
    "Where",
    "acknowledge",
    "pending",
    "sweep",
]

Where: TypeAlias = tuple[str, str, str]
"""Id of the database, class and id."""

_MOST: Final = 100_000
"""Records beyond are forgotten, and found by the relay's sweep."""


class RecentWrites:
    """The records that this process wrote, a hint to the relay: bounded, in the order of writes."""

    def __init__(self) -> None:
        self._records: dict[Where, None] = {}

    def note(self, write: Write) -> None:
        """Note that a record may have been written."""
        if len(self._records) < _MOST:
            fragment = write.fragment
            self._records[fragment.database_id, fragment.class_name, write.id] = None

    def note_again(self, where: Where) -> None:
        """Note that the outbox of a record has more."""
        self._records[where] = None

    def take(self, limit: int) -> list[Where]:
        """Return the first `limit` records, and forget them."""
        taken = list(islice(self._records, limit))
        for where in taken:
            del self._records[where]
        return taken


SWEEP_EVERY_S: Final = 30.0
"""Pause between two sweeps where an index leads to what they look for."""

SCAN_EVERY_S: Final = 600.0
"""Pause where they have to look at every record."""

SWEEP_WITHIN_S: Final = 60.0
"""Longest time of one sweep."""

_LARGEST_PAGE: Final = 2**23
"""Characters of entries after which no more records are looked at in one call."""

WAITING: Final[Document] = {"_pending.0": {"$exists": True}}
"""The condition that a record has changes that are not relayed."""

_NEEDED: Final[Document] = BOOKKEEPING | {
    "values": 1,
    "_base": 1,
    "_acknowledged": 1,
    "_pending": {"$slice": AT_ONCE + 1},
}


async def pending(
    session: MongoSession, recent_writes: RecentWrites, fragment: Fragment, ids: Sequence[str]
) -> list[UnrelayedChanges]:
    """Read the changes that wait in some records; see `PendingChanges.pending`."""
    query = WAITING | among(ids)
    replay = replay_of(fragment)
    changes: list[UnrelayedChanges] = []
    unseen, size = dict.fromkeys(ids), 0
    async for document in session.collection(layout_of(fragment)).find(query, _NEEDED):
        one = await offload(is_large(document.get("values")), replay.unrelayed, document)
        changes.append(one)
        unseen.pop(one.id, None)
        again = [] if one.complete else [one.id]
        size += sum(map(len, document["_pending"]))
        if size > _LARGEST_PAGE:
            again += unseen
        for id_ in again:
            recent_writes.note_again((fragment.database_id, fragment.class_name, id_))
        if size > _LARGEST_PAGE:
            break
    return changes


async def sweep(
    session: MongoSession, fragment: Fragment, after: str | None, limit: int
) -> list[str]:
    """Find records in which changes wait; see `PendingChanges.sweep`."""
    layout, ids = layout_of(fragment), list[str]()
    reached = None if after is None else ordered_text(after)
    async for span in spans(session, layout, reached):
        options: Document = {"sort": {"_id": 1}, "limit": limit - len(ids)}
        found = session.collection(layout).find(span | WAITING, {"_id": 1}, **options)
        ids += [plain_text(document["_id"]) async for document in found]
        if len(ids) == limit:
            break
    return ids


async def acknowledge(session: MongoSession, done: Sequence[UnrelayedChanges]) -> None:
    """Remove relayed changes; see `PendingChanges.acknowledge`."""
    updates: defaultdict[Layout, list[UpdateOne]] = defaultdict(list)
    for one in done:
        layout = layout_of(one.fragment)
        updates[layout].append(_removal(layout, one.id, one.receipt))
    for layout, requests in updates.items():
        await session.collection(layout).bulk_write(requests, ordered=False)


def _removal(layout: Layout, id_: str, acknowledgement: Acknowledgement) -> UpdateOne:
    """Pull the entries, unless another relay has acknowledged some."""
    sets: Document = {"_acknowledged": acknowledgement.acknowledged}
    update: Document = {"$pullAll": {"_pending": list(acknowledgement.entries)}, "$set": sets}
    if acknowledgement.base is None:
        update["$unset"] = {"_base": ""}
    else:
        sets["_base"] = acknowledgement.base
    return UpdateOne(layout.key(id_) | acknowledgement.condition, update)
