"""What a write leaves in its record: an entry for the feed, and, if asked, its own result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from bson.int64 import Int64

from mediator.schema.types import Values
from mediator.stores.mongo.layout import Document, Layout
from mediator.stores.mongo.outbox.effect import Effect
from mediator.stores.port import RememberedOperation, Status, Write, WriteResult

__all__ = [
    "FULL",
    "OUTBOX",
    "REMEMBERED",
    "SETTLED",
    "VACANCY",
    "entries",
    "holds",
    "pushes",
    "recall",
    "recalled",
    "settled",
    "settled_count",
]

REMEMBERED: Final = 128
"""Remembered operations that one record keeps; older ones make room."""

OUTBOX: Final = 2_500
"""Outbox entries that one record keeps; when there are so many, writes wait for the relay.

More than a request may bring (1,000), few enough to keep documents far below 16 MB.
"""

SETTLED: Final = 16
"""Operations that one record names of those that have left its outbox."""

_LAST_PLACE: Final = f"_pending.{OUTBOX - 1}"

FULL: Final[Document] = {_LAST_PLACE: {"$exists": True}}
"""The condition that a record takes no more entries."""

VACANCY: Final[Document] = {_LAST_PLACE: {"$exists": False}}
"""The condition of every write that there is room for its entry."""


def entries(
    layout: Layout, write: Write, result: WriteResult, values: Values | None, stamp: int
) -> dict[str, list[Any]]:
    """Return what the lists of the record get by a write.

    Args:
        layout: The record's layout.
        write: The write.
        result: What it will answer.
        values: The values it will return, or None if it returns none.
        stamp: The store's clock, microseconds.
    """
    lists: dict[str, list[Any]] = {"_pending": [layout.effects.text(write, result.versions, stamp)]}
    if write.remember is not None:
        lists["_ops"] = [_memory(layout, write, result, values, stamp)]
    return lists


def pushes(lists: Mapping[str, list[Any]]) -> Document:
    """Return the `$push` that adds these entries, and drops what need not be remembered longer."""
    update: Document = {"_pending": lists["_pending"][0]}
    if "_ops" in lists:
        update["_ops"] = {"$each": lists["_ops"], "$slice": -REMEMBERED}
    return update


def _memory(
    layout: Layout, write: Write, result: WriteResult, values: Values | None, stamp: int
) -> Document:
    memory: Document = {
        "op": write.operation,
        "fingerprint": write.remember,
        "time": Int64(stamp),
        "created": result.created,
        "creation_version": Int64(result.creation_version),
        "versions": _stored(layout, result.versions),
    }
    if values is not None:
        memory["values"] = layout.encode_all(values)
    return memory


def _stored(layout: Layout, versions: Mapping[str, int]) -> Document:
    return layout.encode_versions({group: Int64(version) for group, version in versions.items()})


def recalled(
    layout: Layout, document: Mapping[str, Any] | None, operation: str
) -> RememberedOperation | None:
    """Return what a document remembers of an operation."""
    for memory in (document or {}).get("_ops", ()):
        if memory["op"] == operation:
            result = WriteResult(
                Status.REPLAYED,
                created=memory["created"],
                creation_version=int(memory["creation_version"]),
                versions=layout.decode_versions(memory),
                values=layout.decode_all(memory.get("values")),
            )
            return RememberedOperation(memory["fingerprint"], result)
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


def settled(document: Mapping[str, Any] | None, effects: Sequence[Effect]) -> str:
    """Return what a record tells of its outbox when these entries leave it."""
    count, *names = _told(document)
    names += (_name(effect.operation, effect.stamp) for effect in effects)
    return orjson.dumps([count + len(effects), *names[-SETTLED:]]).decode()


def settled_count(document: Mapping[str, Any] | None) -> int:
    """Return how many entries have left the outbox of a document."""
    return int(_told(document)[0])


def holds(
    document: Mapping[str, Any] | None, operation: str, stamp: int, count: int
) -> bool | None:
    """Say whether a document has taken a write, and not one of another process for the same.

    Args:
        document: The document now.
        operation: The write's operation.
        stamp: What it was stamped with.
        count: How many entries had left its outbox before the write was tried.

    Returns:
        None if it cannot be known, as so many entries have left since that not all are named.
    """
    pending = (document or {}).get("_pending", ())
    total, *names = _told(document)
    effects = map(Effect.read, pending)
    if any((effect.operation, effect.stamp) == (operation, stamp) for effect in effects):
        return True
    if _name(operation, stamp) in names:
        return True
    return None if total - count > SETTLED else False


def _name(operation: str, stamp: int) -> str:
    """Tell a write from those of others who carry out the same operation."""
    return f"{operation} {stamp}"


def _told(document: Mapping[str, Any] | None) -> list[Any]:
    text = (document or {}).get("_settled")
    return [0] if text is None else orjson.loads(text)
