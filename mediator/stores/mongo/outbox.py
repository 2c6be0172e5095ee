"""What a write leaves in its record: an entry for the feed, and, if asked, its own result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bson.int64 import Int64

from mediator.schema.types import Values
from mediator.stores.mongo.layout import Document, Layout
from mediator.stores.port import Recalled, Status, Write, WriteResult

__all__ = ["OUTBOX", "REMEMBERED", "entries", "holds", "pushes", "recall", "recalled"]

REMEMBERED: Final = 128
"""Remembered operations that one record keeps; older ones make room."""

OUTBOX: Final = 64
"""Outbox entries that one record keeps until the relay drains them; older ones make room."""


def entries(
    layout: Layout, write: Write, result: WriteResult, values: Values | None, stamp: int
) -> dict[str, list[Document]]:
    """Return what the lists of the record get by a write.

    Args:
        layout: The record's layout.
        write: The write.
        result: What it will answer.
        values: The values it will return, or None if it returns none.
        stamp: The store's clock, microseconds.
    """
    lists = {"_pending": [_change(layout, write, result.versions, stamp)]}
    if write.remember is not None:
        lists["_ops"] = [_memory(layout, write, result, values, stamp)]
    return lists


def pushes(lists: Mapping[str, list[Document]]) -> Document:
    """Return the `$push` that adds these entries and keeps the lists within their bounds."""
    limits = {"_pending": OUTBOX, "_ops": REMEMBERED}
    return {name: {"$each": items, "$slice": -limits[name]} for name, items in lists.items()}


def _change(layout: Layout, write: Write, versions: Mapping[str, int], stamp: int) -> Document:
    touched = [*write.values, *write.unset, *(call.field for call in write.operators)]
    return {
        "op": write.operation,
        "kind": write.kind.name.lower(),
        "time": Int64(stamp),
        "versions": _stored(layout, {group: versions[group] for group in write.groups}),
        "fields": touched,
    }


def _memory(
    layout: Layout, write: Write, result: WriteResult, values: Values | None, stamp: int
) -> Document:
    memory: Document = {
        "op": write.operation,
        "fingerprint": write.remember,
        "time": Int64(stamp),
        "created": result.created,
        "birth": Int64(result.birth),
        "versions": _stored(layout, result.versions),
    }
    if values is not None:
        memory["values"] = layout.encode_all(values)
    return memory


def _stored(layout: Layout, versions: Mapping[str, int]) -> Document:
    return layout.encode_versions({group: Int64(version) for group, version in versions.items()})


def recalled(layout: Layout, document: Mapping[str, Any] | None, operation: str) -> Recalled | None:
    """Return what a document remembers of an operation."""
    for memory in (document or {}).get("_ops", ()):
        if memory["op"] == operation:
            result = WriteResult(
                Status.REPLAYED,
                created=memory["created"],
                birth=int(memory["birth"]),
                versions=layout.decode_versions(memory),
                values=layout.decode_all(memory.get("values")),
            )
            return Recalled(memory["fingerprint"], result)
    return None


def recall(layout: Layout, document: Mapping[str, Any] | None, write: Write) -> WriteResult | None:
    """Return the answer to a write that took effect before, or None if it did not."""
    if write.remember is None:
        return None
    memory = recalled(layout, document, write.operation)
    if memory is None:
        return None
    same = memory.fingerprint == write.remember
    return memory.result if same else WriteResult(Status.REUSED)


def holds(document: Mapping[str, Any] | None, operation: str, version: int) -> bool | None:
    """Say whether a document has taken a write of this operation, at this version.

    None: it cannot be known, as so many writes followed that the outbox has dropped its entry.
    """
    pending = (document or {}).get("_pending", ())
    if any(entry["op"] == operation for entry in pending):
        return True
    oldest = min((v for e in pending for v in e["versions"].values()), default=version)
    return None if len(pending) >= OUTBOX and oldest > version else False
