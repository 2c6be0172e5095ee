"""Write intents, in the documents of their records (`Lockable`).

An absent record gets a document, a tombstone without versions, so that an insertion of the record
conflicts with it. Records with documents get their intents by one statement, which costs a server
less than one for each; records without take a second round trip.
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
    tombstone = {"tombstone": Int64(now_us), "creation_version": Int64(0), "_bytes": Int64(0)}
    change: Document = {"$set": {"_intent": intent}}
    if redo:
        change["$set"]["_redo"] = redo
    update = change | {"$setOnInsert": tombstone}
    if len(ids) == 1:
        document = await _lock_one(session, layout, ids[0], intent, update)
        return {ids[0]: _record_state(layout, document)}
    step = {"q": among(ids) | _takes(intent), "u": change, "multi": True}
    documents = _by_id(await session.change_and_find(layout, [step], _lookup(ids)))
    # The pending ones are absent, or free by now.
    while pending := [
        id_ for id_ in ids if not _is_final(documents.get(ordered_text(id_), {}), intent)
    ]:
        queries = [layout.key(id_) | _takes(intent) for id_ in pending]
        steps = [{"q": query, "u": update, "upsert": True} for query in queries]
        documents |= _by_id(await session.change_and_find(layout, steps, _lookup(pending)))
    return _record_states(layout, ids, documents)


async def _lock_one(
    session: MongoSession, layout: Layout, id_: str, intent: str, update: Document
) -> Document:
    """Set an intent and return the document, by one command unless there is another intent."""
    query = layout.key(id_) | _takes(intent)
    while True:
        try:
            return await session.put(layout, query, update, _NEEDED)
        except DuplicateKeyError:
            # There is another intent or a fence, or a concurrent upsert has inserted the document:
            # then retry on that document.
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
    # The remaining records have reservations, or had some until now.
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
    layout: Layout, ids: Sequence[str], documents: Mapping[str, Document]
) -> dict[str, RecordState]:
    return {id_: _record_state(layout, documents.get(ordered_text(id_))) for id_ in ids}


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
