"""The outboxes of records: reads pending changes, and removes relayed ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from typing import Final, TypeAlias

from pymongo import UpdateOne

from mediator.base.offload import is_large, offload
from mediator.stores.mongo.codec import ordered_text, plain_text
from mediator.stores.mongo.layout import BOOKKEEPING, Document, Layout, among, layout_of
from mediator.stores.mongo.outbox.replay import MAX_REPLAYED, Acknowledgement, replay_of
from mediator.stores.mongo.read.spans import spans
from mediator.stores.mongo.session import MongoSession
from mediator.stores.port import Fragment, UnrelayedChanges, Write

__all__ = [
    "SCAN_EVERY_S",
    "SWEEP_EVERY_S",
    "SWEEP_WITHIN_S",
    "WAITING",
    "RecentWrites",
    "RecordReference",
    "acknowledge",
    "pending",
    "sweep",
]

RecordReference: TypeAlias = tuple[str, str, str]
"""Id of the database, class and id."""

_MAX_RECORDS: Final = 100_000
"""Maximum number of recent records; the relay's sweep finds the others."""


class RecentWrites:
    """The records that this process wrote, a hint to the relay: bounded, in write order."""

    def __init__(self) -> None:
        self._records: dict[RecordReference, None] = {}

    def add(self, write: Write) -> None:
        """Add a record that may have been written."""
        if len(self._records) < _MAX_RECORDS:
            fragment = write.fragment
            self._records[fragment.database_id, fragment.class_name, write.id] = None

    def requeue(self, record: RecordReference) -> None:
        """Add a record again, because its outbox has more."""
        self._records[record] = None

    def take(self, limit: int) -> list[RecordReference]:
        """Remove and return the first `limit` records."""
        records = list(islice(self._records, limit))
        for record in records:
            del self._records[record]
        return records


SWEEP_EVERY_S: Final = 30.0
"""Interval of sweeps with an index, in seconds."""

SCAN_EVERY_S: Final = 600.0
"""Interval of sweeps that must read every record, in seconds."""

SWEEP_WITHIN_S: Final = 60.0
"""Timeout of one sweep, in seconds."""

_MAX_PAGE_CHARACTERS: Final = 2**23
"""Characters of entries after which one call reads no more records."""

WAITING: Final[Document] = {"_pending.0": {"$exists": True}}
"""The condition that a record has unrelayed changes."""

_NEEDED: Final[Document] = BOOKKEEPING | {
    "values": 1,
    "_base": 1,
    "_acknowledged": 1,
    "_pending": {"$slice": MAX_REPLAYED + 1},
}


async def pending(
    session: MongoSession, recent_writes: RecentWrites, fragment: Fragment, ids: Sequence[str]
) -> list[UnrelayedChanges]:
    """Read the pending changes of some records; see `PendingChanges.pending`."""
    query = WAITING | among(ids)
    replay = replay_of(fragment)
    changes: list[UnrelayedChanges] = []
    unseen, size = dict.fromkeys(ids), 0
    async for document in session.collection(layout_of(fragment)).find(query, _NEEDED):
        unrelayed = await offload(is_large(document.get("values")), replay.unrelayed, document)
        changes.append(unrelayed)
        unseen.pop(unrelayed.id, None)
        requeued = [] if unrelayed.complete else [unrelayed.id]
        size += sum(map(len, document["_pending"]))
        if size > _MAX_PAGE_CHARACTERS:
            requeued += unseen
        for id_ in requeued:
            recent_writes.requeue((fragment.database_id, fragment.class_name, id_))
        if size > _MAX_PAGE_CHARACTERS:
            break
    return changes


async def sweep(
    session: MongoSession, fragment: Fragment, after: str | None, limit: int
) -> list[str]:
    """Find records with pending changes; see `PendingChanges.sweep`."""
    layout, ids = layout_of(fragment), list[str]()
    start = None if after is None else ordered_text(after)
    async for span in spans(session, layout, start):
        options: Document = {"sort": {"_id": 1}, "limit": limit - len(ids)}
        cursor = session.collection(layout).find(span | WAITING, {"_id": 1}, **options)
        ids += [plain_text(document["_id"]) async for document in cursor]
        if len(ids) == limit:
            break
    return ids


async def acknowledge(session: MongoSession, relayed: Sequence[UnrelayedChanges]) -> None:
    """Remove relayed changes; see `PendingChanges.acknowledge`."""
    updates: defaultdict[Layout, list[UpdateOne]] = defaultdict(list)
    for changes in relayed:
        layout = layout_of(changes.fragment)
        updates[layout].append(_removal(layout, changes.id, changes.receipt))
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
