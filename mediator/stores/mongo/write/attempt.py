"""A write in one round trip: a single update under conditions.

The condition covers everything: presence, expected versions, the guards of native operators, and
that every written version is lower than the new one, which is our clock. If it fails, for any
reason, nothing happens, and the record is read (`decision`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from bson.int64 import Int64

from mediator.schema.types import Values
from mediator.stores.mongo import sizes
from mediator.stores.mongo.layout import (
    BOOKKEEPING,
    INTENT_FIELDS,
    LIVE,
    Document,
    Layout,
    has_intent,
    is_live,
    unfenced,
)
from mediator.stores.mongo.outbox.entries import VACANCY
from mediator.stores.mongo.write.claims import with_claims
from mediator.stores.mongo.write.decision import returned_values, values_as_read
from mediator.stores.mongo.write.operators import native
from mediator.stores.port import Status, Write, WriteKind, WriteResult

__all__ = ["UpdateAttempt", "attempt_of"]


@dataclass(frozen=True, slots=True)
class UpdateAttempt:
    """A `findAndModify`.

    Attributes:
        query: The condition.
        update: The modifiers.
        projection: The projection of the document that `result_of` needs.
        after: Whether the document after the update is needed, rather than the one before.
        upsert: Whether an absent record is inserted.
        stamp: The stamp of the write (store clock, microseconds).
        result_of: Computes the result from the document (None: it was absent before).
        is_fixed: Whether the result does not depend on the document.
    """

    query: Document
    update: Document
    projection: Document
    after: bool
    upsert: bool
    stamp: int
    result_of: Callable[[Document | None], WriteResult]
    is_fixed: bool = False


def attempt_of(layout: Layout, write: Write, stamp: int, token: str) -> UpdateAttempt | None:
    """Translate a write, or return None if the record must be read first.

    A remembered write stores its result, which must be known beforehand. A write under an intent
    must know whether it creates or replaces, unless it has a creation version.
    """
    if write.remember is not None:
        return None
    attempt = _TRANSLATORS[write.kind](layout, write, stamp)
    return None if attempt is None else _with_size_limit(attempt, token)


def _with_size_limit(attempt: UpdateAttempt, token: str) -> UpdateAttempt | None:
    """Add the condition that the document stays small; None if that must be computed (`sizes`).

    A document grows by less than the size of the update, whose paths are longer than the
    document's keys.
    """
    added = sizes.size_of(attempt.update)
    if added > sizes.MAX_VALUES_BYTES:
        return None
    increments = attempt.update.get("$inc", {}) | {"_bytes": Int64(added)}
    size_limit: Document = {"_bytes": {"$lte": Int64(sizes.MAX_VALUES_BYTES - added)}}
    query = attempt.query | unfenced(token) | size_limit
    return replace(attempt, query=query, update=attempt.update | {"$inc": increments})


def _condition(layout: Layout, write: Write, stamp: int, presence: Document = LIVE) -> Document:
    paths = layout.version_paths
    query = layout.key(write.id) | presence | VACANCY | has_intent(write.intent)
    for group in write.groups:
        # Versions only rise: the stamp must be later. `$not $gte` is `$lt`, but also true without a
        # version.
        query[paths[group]] = {"$not": {"$gte": Int64(stamp)}}
    for group, version in write.expect.items():
        expected = {"$eq": Int64(version)} if version else {"$exists": False}
        query[paths[group]] = query.get(paths[group], {}) | expected
    return query


def _bookkeeping(layout: Layout, write: Write, stamp: int) -> dict[str, Document]:
    """Return the modifiers of every write: its `$set`, `$unset` and `$push`."""
    update: dict[str, Document] = {}
    if write.groups:
        versions = dict.fromkeys(write.groups, stamp)
        update["$set"] = {layout.version_paths[group]: Int64(stamp) for group in write.groups}
        update["$push"] = {"_pending": layout.effects.text(write, versions, stamp)}
    if write.intent:
        update["$set"] = update.get("$set", {}) | {"_joint": write.intent}
        update["$unset"] = INTENT_FIELDS
    return with_claims(layout, write, update)


def _unset(update: dict[str, Document], paths: Iterable[str]) -> None:
    if unset_fields := dict.fromkeys(paths, ""):
        update["$unset"] = update.get("$unset", {}) | unset_fields


def _versions(
    layout: Layout, write: Write, document: Document | None, stamp: int
) -> dict[str, int]:
    return layout.decode_versions(document) | dict.fromkeys(write.groups, stamp)


def _update(layout: Layout, write: Write, stamp: int) -> UpdateAttempt | None:
    query = _condition(layout, write, stamp)
    update = _bookkeeping(layout, write, stamp)
    for name, value in write.values.items():
        update["$set"][layout.paths[name]] = layout.encode(name, value)
    _unset(update, [layout.paths[name] for name in write.unset])
    for call in write.operators:
        step = native(layout, call, stamp)
        if step is None:
            return None
        query |= step.guard
        for modifier, paths in step.update.items():
            update[modifier] = update.get(modifier, {}) | paths

    def result_of(document: Document | None) -> WriteResult:
        assert document is not None
        values = layout.decode_all(document.get("values"), write.returning or None)
        return WriteResult(
            Status.APPLIED,
            creation_version=int(document["creation_version"]),
            versions=_versions(layout, write, document, stamp),
            values={} if write.returning is None else values,
        )

    after = write.returning is not None
    projection = layout.projection(write.returning or None) if after else BOOKKEEPING
    return UpdateAttempt(
        query, update, projection, after=after, upsert=False, stamp=stamp, result_of=result_of
    )


def _deletion(layout: Layout, write: Write, stamp: int) -> UpdateAttempt:
    query = _condition(layout, write, stamp)
    if write.creation_version is not None:  # a later generation is spared
        query["creation_version"] = {"$lte": Int64(write.creation_version)}
    update = _bookkeeping(layout, write, stamp)
    update["$set"]["tombstone"] = Int64(stamp)
    _unset(update, ["values"])

    def result_of(document: Document | None) -> WriteResult:
        versions = _versions(layout, write, document, stamp)
        highest = max(versions.values())
        return WriteResult(Status.APPLIED, creation_version=highest, versions=versions)

    return UpdateAttempt(
        query, update, BOOKKEEPING, after=False, upsert=False, stamp=stamp, result_of=result_of
    )


def _creation(layout: Layout, write: Write, stamp: int) -> UpdateAttempt | None:
    """Create a record under an intent, hence from a tombstone; without an intent, insert it."""
    if not write.intent or write.expect:
        return None
    creation_version = stamp if write.creation_version is None else write.creation_version
    return _full_replacement(
        layout, write, stamp, creation_version, {"tombstone": {"$exists": True}}, upsert=False
    )


def _replacement(layout: Layout, write: Write, stamp: int) -> UpdateAttempt | None:
    present = bool(write.expect) or write.require_present
    if not write.intent:
        return _full_replacement(
            layout, write, stamp, write.creation_version, LIVE, upsert=not present
        )
    if not present and write.creation_version is None:
        return None
    return _full_replacement(
        layout, write, stamp, write.creation_version, LIVE if present else {}, upsert=False
    )


def _full_replacement(
    layout: Layout,
    write: Write,
    stamp: int,
    creation_version: int | None,
    presence: Document,
    *,
    upsert: bool,
) -> UpdateAttempt:
    """Set a full record.

    Without `creation_version` the record keeps its own, or gets one when it is inserted. With an
    empty `presence` the record can be present or absent.
    """
    update = _bookkeeping(layout, write, stamp)
    update["$set"]["values"] = layout.encode_all(write.values)
    if write.intent:
        _unset(update, ["tombstone"])
    if creation_version is None:
        update["$setOnInsert"] = {"creation_version": Int64(stamp)}
    else:
        update["$set"]["creation_version"] = Int64(creation_version)
    values: Values = {}
    if write.returning is not None:
        values = returned_values(write, values_as_read(layout, write)) or {}

    def result_of(before: Document | None) -> WriteResult:
        version = creation_version
        if version is None:
            version = stamp if before is None else int(before["creation_version"])
        versions = _versions(layout, write, before, stamp)
        return WriteResult(Status.APPLIED, not is_live(before), version, versions, values)

    return UpdateAttempt(
        _condition(layout, write, stamp, presence),
        update,
        BOOKKEEPING,
        after=False,
        upsert=upsert,
        stamp=stamp,
        result_of=result_of,
        is_fixed=presence is LIVE and creation_version is not None,
    )


_TRANSLATORS: Final[Mapping[WriteKind, Callable[[Layout, Write, int], UpdateAttempt | None]]] = {
    WriteKind.CREATE: _creation,
    WriteKind.UPDATE: _update,
    WriteKind.DELETE: _deletion,
    WriteKind.REPLACE: _replacement,
}
