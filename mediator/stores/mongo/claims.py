"""Claims of unique constraints (`Claiming`): lists in the documents, each under a unique index.

What a record claims and what it has reserved are in one list, so that the same index decides. The
index is sparse and no list is empty: an empty one would be indexed, and be there once only.
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
from mediator.stores.mongo.write.claims import merged_into
from mediator.stores.port import StoreUnavailable, TakenClaim, Write

__all__ = ["holders", "release", "reserve"]

_ATTEMPTS: Final = 32
_NEEDED: Final[Document] = {"_claims": 1, "_reserved": 1, "_intent": 1, "tombstone": 1}


async def holders(
    session: MongoSession, layout: Layout, writes: Sequence[Write]
) -> dict[str, TakenClaim]:
    """Return by id which of the writes claim what another record has, or has reserved."""
    taken: dict[str, TakenClaim] = {}
    for name, path in layout.claim_paths.items():
        wanted: defaultdict[str, list[Write]] = defaultdict(list)
        for write in writes:
            if claim := write.claims.get(name):
                wanted[claim].append(write)
        lookup = Lookup({path: {"$in": list(wanted)}}, _NEEDED, len(wanted))
        for document in await session.find_each(layout, lookup) if wanted else ():
            for claim in wanted.keys() & document["_claims"][name]:
                others = [w.id for w in wanted[claim] if ordered_text(w.id) != document["_id"]]
                taken |= dict.fromkeys(others, _taken(name, claim, document))
    return taken


def _taken(name: str, claim: str, document: Document) -> TakenClaim:
    is_reserved = document.get("_reserved", {}).get(name) == claim
    intent = document.get("_intent", "") if is_reserved else ""
    return TakenClaim(name, plain_text(document["_id"]), intent)


async def reserve(session: MongoSession, write: Write) -> TakenClaim | None:
    """Reserve what a write claims, all of it or nothing; see `Claiming.reserve`."""
    layout = layout_of(write.fragment)
    key = layout.key(write.id) | has_intent(write.intent)
    own = Lookup(key, _NEEDED, 1)
    found = await session.find_each(layout, own)
    for _ in range(_ATTEMPTS):
        left = _unclaimed(write, found[0]) if found else {}
        if not left:
            return None
        added = {layout.claim_paths[name]: claim for name, claim in left.items()}
        noted = {f"_reserved.{name}": claim for name, claim in left.items()}
        step = {"q": key, "u": {"$addToSet": added, "$set": noted}}
        found = await session.change_and_find(layout, [step], own)
        if found and _unclaimed(write, found[0]):
            taken = await holders(session, layout, [write])
            if taken:
                return taken[write.id]
    raise StoreUnavailable("too many writers claim one value; nothing was done")


def _unclaimed(write: Write, document: Document) -> dict[str, str]:
    """Return what a write claims that its record neither claims nor has reserved."""
    held = document.get("_claims", {})
    return {
        name: claim
        for name, claim in write.claims.items()
        if claim is not None and claim not in held.get(name, ())
    }


async def release(
    session: MongoSession, layout: Layout, ids: Sequence[str], intent: str, *, joint: bool
) -> bool:
    """Remove the reservations of records, and their intent with them; return whether any had some.

    Each record is changed on the condition that its reservations are those read: a coordinator
    that does not know yet that it was aborted may be adding to them.
    """
    query = among(ids) | has_intent(intent) | {"_reserved": {"$exists": True}}
    found = await session.find_each(layout, Lookup(query, _NEEDED, len(ids)))
    if found:
        await session.change(layout, [_released(each, intent, joint) for each in found])
    return bool(found)


def _released(document: Document, intent: str, joint: bool) -> tuple[Document, Document]:
    reserved = document["_reserved"]
    query = {"_id": document["_id"], "_reserved": reserved} | has_intent(intent)
    sets: Document = {"_joint": intent} if joint and is_live(document) else {}
    unset = [*INTENT_FIELDS, "_reserved"]
    for name, claim in reserved.items():
        kept: list[Any] = [each for each in document["_claims"][name] if each != claim]
        if kept:
            sets[f"_claims.{name}"] = kept
        else:
            unset.append(f"_claims.{name}")
    return query, merged_into({}, sets, unset)
