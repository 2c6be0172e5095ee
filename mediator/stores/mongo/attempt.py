"""A write in one round trip: a single update that applies only if nothing stands against it.

The condition carries everything: presence, expected versions, the guards of native operators, and
that every version written is lower than the new one, which is our clock. If it does not hold, for
whatever reason, nothing happens, and the record is looked at (`mediator.stores.mongo.verdict`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from bson.int64 import Int64

from mediator.stores.mongo.layout import BOOKKEEPING, LIVE, Document, Layout, marked, unfenced
from mediator.stores.mongo.native import native
from mediator.stores.mongo.outbox import VACANCY, entries, pushes
from mediator.stores.mongo.verdict import replacing, returned
from mediator.stores.port import Status, Write, WriteKind, WriteResult

__all__ = ["Attempt", "attempt"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """A `findAndModify`.

    Attributes:
        query: The condition.
        update: The modifiers.
        projection: What is needed of the document to answer.
        after: Whether the document after the update is needed, rather than the one before.
        upsert: Whether the record is made if there is none.
        answer: Makes the result from the document (None: there was none before).
    """

    query: Document
    update: Document
    projection: Document
    after: bool
    upsert: bool
    answer: Callable[[Document | None], WriteResult]


def attempt(layout: Layout, write: Write, stamp: int, token: str = "") -> Attempt | None:
    """Translate a write, or return None if it takes a look at the record first.

    A remembered write does: its result is stored with it, so it must be known beforehand. So does
    one under a mark: it may not make a record by which the mark would come into being.
    """
    if write.remember is not None or write.mark or write.kind is WriteKind.CREATE:
        return None
    chance = _MAKERS[write.kind](layout, write, stamp)
    if chance is not None and token:
        return replace(chance, query=chance.query | unfenced(token))
    return chance


def _condition(layout: Layout, write: Write, stamp: int) -> Document:
    paths = layout.version_paths
    query = layout.key(write.id) | LIVE | VACANCY | marked("")
    for group in write.groups:
        query[paths[group]] = {"$lt": Int64(stamp)}
    for group, version in write.expect.items():
        query[paths[group]] = query.get(paths[group], {}) | {"$eq": Int64(version)}
    return query


def _bookkeeping(layout: Layout, write: Write, stamp: int) -> tuple[Document, Document]:
    """Return the `$set` and the `$push` that every write has."""
    versions = dict.fromkeys(write.groups, stamp)
    lists = entries(layout, write, WriteResult(Status.APPLIED, versions=versions), None, stamp)
    return dict.fromkeys((layout.version_paths[g] for g in write.groups), Int64(stamp)), pushes(
        lists
    )


def _update(layout: Layout, write: Write, stamp: int) -> Attempt | None:
    query = _condition(layout, write, stamp)
    sets, pushed = _bookkeeping(layout, write, stamp)
    update: Document = {"$set": sets, "$push": pushed}
    for name, value in write.values.items():
        sets[layout.paths[name]] = layout.encode(name, value)
    if write.unset:
        update["$unset"] = {layout.paths[name]: "" for name in write.unset}
    for call in write.operators:
        step = native(layout, call, stamp)
        if step is None:
            return None
        query |= step.guard
        for modifier, paths in step.update.items():
            update[modifier] = update.get(modifier, {}) | paths

    def answer(document: Document | None) -> WriteResult:
        assert document is not None
        values = layout.decode_all(document.get("values"), write.returning or None)
        return WriteResult(
            Status.APPLIED,
            birth=int(document["birth"]),
            versions=layout.decode_versions(document),
            values={} if write.returning is None else values,
        )

    projection = (
        BOOKKEEPING if write.returning is None else layout.projection(write.returning or None)
    )
    return Attempt(query, update, projection, after=True, upsert=False, answer=answer)


def _deletion(layout: Layout, write: Write, stamp: int) -> Attempt:
    query = _condition(layout, write, stamp)
    if write.birth is not None:
        query["birth"] = {"$lte": Int64(write.birth)}
    sets, pushed = _bookkeeping(layout, write, stamp)
    sets["tombstone"] = Int64(stamp)
    update = {"$set": sets, "$push": pushed, "$unset": {"values": ""}}

    def answer(document: Document | None) -> WriteResult:
        versions = layout.decode_versions(document) | dict.fromkeys(write.groups, stamp)
        highest = max(versions.values())
        return WriteResult(Status.APPLIED, birth=highest, versions=versions)

    return Attempt(query, update, BOOKKEEPING, after=False, upsert=False, answer=answer)


def _replacement(layout: Layout, write: Write, stamp: int) -> Attempt:
    sets, pushed = _bookkeeping(layout, write, stamp)
    sets["values"] = layout.encode_all(write.values)
    update: dict[str, Any] = {"$set": sets, "$push": pushed}
    if write.birth is None:
        update["$setOnInsert"] = {"birth": Int64(stamp)}
    else:
        sets["birth"] = Int64(write.birth)
    blank = WriteResult(Status.APPLIED, values=returned(write, replacing(layout, write)) or {})

    def answer(before: Document | None) -> WriteResult:
        birth = write.birth or (stamp if before is None else int(before["birth"]))
        versions = layout.decode_versions(before) | dict.fromkeys(write.groups, stamp)
        return replace(blank, created=before is None, birth=birth, versions=versions)

    upsert = not (write.expect or write.require_present)
    query = _condition(layout, write, stamp)
    return Attempt(query, update, BOOKKEEPING, after=False, upsert=upsert, answer=answer)


_MAKERS: Final[Mapping[WriteKind, Callable[[Layout, Write, int], Attempt | None]]] = {
    WriteKind.UPDATE: _update,
    WriteKind.DELETE: _deletion,
    WriteKind.REPLACE: _replacement,
}
