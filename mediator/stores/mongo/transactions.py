"""Write intents, in the documents of their records (`Lockable`).

A record that is absent gets a document, a tombstone without versions, so that an insertion of
the record conflicts with it. Of many records, those with documents get their intents by one
statement, which costs a server less than one for each; those that have none take a second round
trip.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from bson.int64 import Int64
from pymongo.errors import DuplicateKeyError

from mediator.stores.mongo import claims
from mediator.stores.mongo.codec import ordered_text
from mediator.stores.mongo.layout import (
    BOOKKEEPING,
    INTENT_FIELDS,
    LIVE,
    Document,
    Layout,
    among,
    has_intent,
    is_fenced,
    is_live,
    unfenced,
)
from mediator.stores.mongo.session import Lookup, MongoSession
from mediator.stores.port import RecordState

__all__ = ["lock", "record_states", "unlock"]

_NEEDED: Final[Document] = BOOKKEEPING | {"_intent": 1, "_joint": 1, "_fences": 1, "_bytes": 1}


async def lock(
    session: MongoSession,
    layout: Layout,
    ids: Sequence[str],
    intent: str,
    redo: str,
    now_us: int,
) -> dict[str, RecordState]:
    """Set an intent on each record that takes it; `now_us` is the store's clock."""
    absent = {"tombstone": Int64(now_us), "creation_version": Int64(0), "_bytes": Int64(0)}
    change: Document = {"$set": {"_intent": intent}}
    if redo:
        change["$set"]["_redo"] = redo
    update = change | {"$setOnInsert": absent}
    if len(ids) == 1:
        document = await _lock_one(session, layout, ids[0], intent, update)
        return {ids[0]: _record_state(layout, document)}
    free = {"q": among(ids) | _takes(intent), "u": change, "multi": True}
    found = _by_id(await session.change_and_find(layout, [free], _lookup(ids)))
    # Those left are absent, or free by now.
    while left := [id_ for id_ in ids if not _is_final(found.get(ordered_text(id_), {}), intent)]:
        queries = [layout.key(id_) | _takes(intent) for id_ in left]
        steps = [{"q": query, "u": update, "upsert": True} for query in queries]
        found |= _by_id(await session.change_and_find(layout, steps, _lookup(left)))
    return _record_states(layout, ids, found)


async def _lock_one(
    session: MongoSession, layout: Layout, id_: str, intent: str, update: Document
) -> Document:
    """Set an intent and return the document, by one command if there is no other intent."""
    query = layout.key(id_) | _takes(intent)
    while True:
        try:
            return await session.put(layout, query, update, _NEEDED)
        except DuplicateKeyError:
            # Another intent or a fence is there, or a concurrent upsert has made the document: in
            # that case, retry on what it made.
            document = await session.find(layout, id_, _NEEDED)
            if document is not None and _is_final(document, intent):
                return document


def _takes(intent: str) -> Document:
    """Return the condition that a record has no intent, and is not fenced against this one."""
    return has_intent("") | unfenced(intent)


def _is_final(document: Document, intent: str) -> bool:
    """Whether a document has an intent, or will never take this one."""
    return "_intent" in document or is_fenced(document, intent)


async def unlock(
    session: MongoSession, layout: Layout, ids: Sequence[str], intent: str, *, joint: bool
) -> None:
    query = among(ids) | has_intent(intent)
    if layout.claim_paths:
        query["_reserved"] = {"$exists": False}
    removal: Document = {"$unset": INTENT_FIELDS}
    steps = [(query, removal)]
    if joint:
        steps.insert(0, (query | LIVE, {"$set": {"_joint": intent}, **removal}))
    await session.change(layout, steps)
    # Those left have reservations, or had some until now.
    release = partial(claims.release, session, layout, ids, intent, joint=joint)
    while layout.claim_paths and await release():
        await session.change(layout, steps)


async def record_states(
    session: MongoSession, layout: Layout, ids: Sequence[str], *, redo: bool
) -> dict[str, RecordState]:
    lookup = _lookup(ids, _NEEDED | {"_redo": 1} if redo else _NEEDED)
    return _record_states(layout, ids, _by_id(await session.find_each(layout, lookup)))


def _lookup(ids: Sequence[str], projection: Document = _NEEDED) -> Lookup:
    return Lookup(among(ids), projection, len(ids))


def _by_id(documents: Iterable[Document]) -> dict[str, Document]:
    return {document["_id"]: document for document in documents}


def _record_states(
    layout: Layout, ids: Sequence[str], found: Mapping[str, Document]
) -> dict[str, RecordState]:
    return {id_: _record_state(layout, found.get(ordered_text(id_))) for id_ in ids}


def _record_state(layout: Layout, document: Mapping[str, object] | None) -> RecordState:
    if document is None:
        return RecordState(None, {}, "", size=0)
    creation_version = int(str(document["creation_version"])) if is_live(document) else None
    return RecordState(
        creation_version,
        layout.decode_versions(document),
        str(document.get("_intent", "")),
        str(document.get("_joint", "")),
        str(document.get("_redo", "")),
        int(str(document["_bytes"])) if "_bytes" in document else None,
    )
