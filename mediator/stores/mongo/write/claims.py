"""The modifiers with which a write changes its record's claims (`mongo.claims`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mediator.stores.mongo.layout import Document, Layout
from mediator.stores.port import Write, WriteKind

__all__ = ["claims_after", "merge_update", "with_claims"]


def with_claims(
    layout: Layout, write: Write, update: Mapping[str, Document]
) -> dict[str, Document]:
    """Add the record's new claims to the modifiers of a write."""
    if not layout.claim_paths:
        return dict(update)
    if write.kind is WriteKind.DELETE:
        return merge_update(update, {}, ["_claims", "_reserved"])
    claims = _claims_of(layout, write)
    sets = {layout.claim_paths[name]: [claim] for name, claim in claims.items() if claim}
    unset = [layout.claim_paths[name] for name, claim in claims.items() if not claim]
    return merge_update(update, sets, [*unset, *(["_reserved"] if write.intent else [])])


def claims_after(layout: Layout, write: Write) -> Document:
    """Return the claims in the document of a new record."""
    claims = {name: [claim] for name, claim in _claims_of(layout, write).items() if claim}
    return {"_claims": claims} if claims else {}


def _claims_of(layout: Layout, write: Write) -> Mapping[str, str | None]:
    if write.kind is WriteKind.UPDATE:
        return write.claims
    return {name: write.claims.get(name) for name in layout.claim_paths}


def merge_update(
    update: Mapping[str, Document], sets: Document, unset: Sequence[str]
) -> dict[str, Document]:
    merged = dict(update)
    if sets:
        merged["$set"] = merged.get("$set", {}) | sets
    if unset:
        merged["$unset"] = merged.get("$unset", {}) | dict.fromkeys(unset, "")
    return merged
