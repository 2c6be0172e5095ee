"""What a write says of the claims of its record (`mongo.claims`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mediator.stores.mongo.layout import Document, Layout
from mediator.stores.port import Write, WriteKind

__all__ = ["claims_after", "merged_into", "with_claims"]


def with_claims(
    layout: Layout, write: Write, update: Mapping[str, Document]
) -> dict[str, Document]:
    """Add to the modifiers of a write what the record claims from then on."""
    if not layout.claim_paths:
        return dict(update)
    if write.kind is WriteKind.DELETE:
        return merged_into(update, {}, ["_claims", "_reserved"])
    claims = _claims_of(layout, write)
    sets = {layout.claim_paths[name]: [claim] for name, claim in claims.items() if claim}
    unset = [layout.claim_paths[name] for name, claim in claims.items() if not claim]
    return merged_into(update, sets, [*unset, *(["_reserved"] if write.intent else [])])


def claims_after(layout: Layout, write: Write) -> Document:
    """Return what the document of a record that is made says of its claims."""
    claims = {name: [claim] for name, claim in _claims_of(layout, write).items() if claim}
    return {"_claims": claims} if claims else {}


def _claims_of(layout: Layout, write: Write) -> Mapping[str, str | None]:
    if write.kind is WriteKind.UPDATE:
        return write.claims
    return {name: write.claims.get(name) for name in layout.claim_paths}


def merged_into(
    update: Mapping[str, Document], sets: Document, unset: Sequence[str]
) -> dict[str, Document]:
    merged = dict(update)
    if sets:
        merged["$set"] = merged.get("$set", {}) | sets
    if unset:
        merged["$unset"] = merged.get("$unset", {}) | dict.fromkeys(unset, "")
    return merged
