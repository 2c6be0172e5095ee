"""Claims of unique constraints (`Claiming`): lists in the documents, each under a unique index.

A record's claims and reservations are in one list, so that the same index decides. The index is
sparse and no list is empty: an empty list would be indexed, and could exist only once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from mediator.stores.mongo.codec import ordered_text, plain_text
from mediator.stores.mongo.layout import (
    INTENT_FIELDS,
    Document,
    Layout,
    among,
    has_intent,
    is_live,
    layout_of,
)
from mediator.stores.mongo.session import Lookup, MongoSession
from mediator.stores.mongo.write.claims import merge_update
from mediator.stores.port import StoreUnavailable, TakenClaim, Write

__all__ = ["holders", "release", "reserve"]

_ATTEMPTS: Final = 32
_NEEDED: Final[Document] = {"_claims": 1, "_reserved": 1, "_intent": 1, "tombstone": 1}


async def holders(
    session: MongoSession, layout: Layout, writes: Sequence[Write]
) -> dict[str, TakenClaim]:
    """Return by id the claims of the writes that another record has, or has reserved."""
    taken: dict[str, TakenClaim] = {}
    for name, path in layout.claim_paths.items():
        writes_by_claim: defaultdict[str, list[Write]] = defaultdict(list)
        for write in writes:
            if claim := write.claims.get(name):
                writes_by_claim[claim].append(write)
        lookup = Lookup({path: {"$in": list(writes_by_claim)}}, _NEEDED, len(writes_by_claim))
        for document in await session.find_each(layout, lookup) if writes_by_claim else ():
            for claim in writes_by_claim.keys() & document["_claims"][name]:
                ids = [
                    w.id for w in writes_by_claim[claim] if ordered_text(w.id) != document["_id"]
                ]
                taken |= dict.fromkeys(ids, _taken_claim(name, claim, document))
    return taken


def _taken_claim(name: str, claim: str, document: Document) -> TakenClaim:
    is_reserved = document.get("_reserved", {}).get(name) == claim
    intent = document.get("_intent", "") if is_reserved else ""
    return TakenClaim(name, plain_text(document["_id"]), intent)


async def reserve(session: MongoSession, write: Write) -> TakenClaim | None:
    """Reserve all claims of a write or none; see `Claiming.reserve`."""
    layout = layout_of(write.fragment)
    key = layout.key(write.id) | has_intent(write.intent)
    lookup = Lookup(key, _NEEDED, 1)
    documents = await session.find_each(layout, lookup)
    for _ in range(_ATTEMPTS):
        missing = _unclaimed(write, documents[0]) if documents else {}
        if not missing:
            return None
        additions = {layout.claim_paths[name]: claim for name, claim in missing.items()}
        reservations = {f"_reserved.{name}": claim for name, claim in missing.items()}
        step = {"q": key, "u": {"$addToSet": additions, "$set": reservations}}
        documents = await session.change_and_find(layout, [step], lookup)
        if documents and _unclaimed(write, documents[0]):
            taken = await holders(session, layout, [write])
            if taken:
                return taken[write.id]
    raise StoreUnavailable("too many writers claim one value; nothing was done")


def _unclaimed(write: Write, document: Document) -> dict[str, str]:
    """Return the claims of a write that its record neither has nor has reserved."""
    present = document.get("_claims", {})
    return {
        name: claim
        for name, claim in write.claims.items()
        if claim is not None and claim not in present.get(name, ())
    }


async def release(
    session: MongoSession, layout: Layout, ids: Sequence[str], intent: str, *, joint: bool
) -> bool:
    """Remove the reservations of records together with the intent; return whether any had some.

    Each record is changed on the condition that its reservations are unchanged since they were
    read: a coordinator that does not yet know that it was aborted can be adding to them.
    """
    query = among(ids) | has_intent(intent) | {"_reserved": {"$exists": True}}
    documents = await session.find_each(layout, Lookup(query, _NEEDED, len(ids)))
    if documents:
        await session.change(
            layout, [_release_update(document, intent, joint) for document in documents]
        )
    return bool(documents)


def _release_update(document: Document, intent: str, joint: bool) -> tuple[Document, Document]:
    reservations = document["_reserved"]
    query = {"_id": document["_id"], "_reserved": reservations} | has_intent(intent)
    sets: Document = {"_joint": intent} if joint and is_live(document) else {}
    unset = [*INTENT_FIELDS, "_reserved"]
    for name, claim in reservations.items():
        remaining: list[Any] = [other for other in document["_claims"][name] if other != claim]
        if remaining:
            sets[f"_claims.{name}"] = remaining
        else:
            unset.append(f"_claims.{name}")
    return query, merge_update({}, sets, unset)
