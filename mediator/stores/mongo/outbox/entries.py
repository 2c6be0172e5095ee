"""Entries that a write adds to its record: an outbox entry, and its result if it is remembered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from bson.int64 import Int64

from mediator.schema.types import Values
from mediator.stores.mongo.layout import Document, Layout
from mediator.stores.mongo.outbox.effect import OutboxEntry
from mediator.stores.port import RememberedOperation, Status, Write, WriteResult

__all__ = [
    "FULL",
    "MAX_ACKNOWLEDGED_NAMES",
    "MAX_OUTBOX_ENTRIES",
    "MAX_REMEMBERED",
    "NO_ROOM",
    "VACANCY",
    "acknowledged_count",
    "acknowledgement_text",
    "entries",
    "has_applied",
    "pushes",
    "recall",
    "remembered_operation",
    "vacancy",
]

MAX_REMEMBERED: Final = 128
"""Maximum number of remembered operations in a record; beyond, older ones are archived."""

MAX_OUTBOX_ENTRIES: Final = 2_500
"""Maximum number of outbox entries in a record; at this number, writes wait for the relay.

More than a request can have (1,000), few enough to keep documents far below 16 MB.
"""

MAX_ACKNOWLEDGED_NAMES: Final = 16
"""Maximum number of acknowledged operations that a record names."""

_LAST_SLOT: Final = f"_pending.{MAX_OUTBOX_ENTRIES - 1}"

FULL: Final[Document] = {_LAST_SLOT: {"$exists": True}}
"""The condition that a record takes no more outbox entries."""

VACANCY: Final[Document] = {_LAST_SLOT: {"$exists": False}}
"""The condition of every write that the record has room for its entry."""


_LAST_OPERATION: Final = f"_ops.{MAX_REMEMBERED - 1}"

NO_ROOM: Final[Document] = {_LAST_OPERATION: {"$exists": True}}
"""The condition that a record takes no more remembered operations."""

_ROOM: Final[Document] = VACANCY | {_LAST_OPERATION: {"$exists": False}}


def vacancy(write: Write) -> Document:
    """Return the condition that a record has room for a write's additions to its lists."""
    return VACANCY if write.remember is None else _ROOM


def entries(
    layout: Layout, write: Write, result: WriteResult, values: Values | None, stamp: int
) -> dict[str, list[Any]]:
    """Return the entries that a write, with its returned values, appends to its record's lists."""
    lists: dict[str, list[Any]] = {}
    if write.groups:
        lists["_pending"] = [layout.effects.text(write, result.versions, stamp)]
    if write.remember is not None:
        lists["_ops"] = [_remembered(layout, write, result, values, stamp)]
    return lists


def pushes(lists: Mapping[str, list[Any]]) -> Document:
    """Return the `$push` that adds these entries, one to each list."""
    return {name: entry for name, [entry] in lists.items()}


def _remembered(
    layout: Layout, write: Write, result: WriteResult, values: Values | None, stamp: int
) -> Document:
    remembered: Document = {
        "op": write.operation,
        "fingerprint": write.remember,
        "time": Int64(stamp),
        "created": result.created,
        "creation_version": Int64(result.creation_version),
        "versions": layout.encode_versions(result.versions),
    }
    if values is not None:
        remembered["values"] = layout.encode_all(values)
    return remembered


def remembered_operation(
    layout: Layout, document: Mapping[str, Any] | None, operation: str
) -> RememberedOperation | None:
    for remembered in (document or {}).get("_ops", ()):
        if remembered["op"] == operation:
            result = WriteResult(
                Status.REPLAYED,
                created=remembered["created"],
                creation_version=int(remembered["creation_version"]),
                versions=layout.decode_versions(remembered),
                values=layout.decode_all(remembered.get("values")),
            )
            return RememberedOperation(remembered["fingerprint"], result)
    return None


def recall(layout: Layout, document: Mapping[str, Any] | None, write: Write) -> WriteResult | None:
    """Return the result of a write that took effect before, or None if it did not."""
    if write.remember is None:
        return None
    remembered = remembered_operation(layout, document, write.operation)
    if remembered is None:
        return None
    is_same = remembered.fingerprint == write.remember
    return remembered.result if is_same else WriteResult(Status.REUSED)


def acknowledgement_text(document: Mapping[str, Any] | None, effects: Sequence[OutboxEntry]) -> str:
    """Return the record's `_acknowledged` once these entries are acknowledged too."""
    count, *names = _acknowledged(document)
    names += (_name(effect.operation, effect.stamp) for effect in effects)
    return orjson.dumps([count + len(effects), *names[-MAX_ACKNOWLEDGED_NAMES:]]).decode()


def acknowledged_count(document: Mapping[str, Any] | None) -> int:
    """Return the number of acknowledged entries of a document."""
    return int(_acknowledged(document)[0])


def has_applied(
    document: Mapping[str, Any] | None, operation: str, stamp: int, count: int
) -> bool | None:
    """Whether this attempt of a write was applied to a document, rather than a retry elsewhere.

    Args:
        document: The current document.
        operation: The write's operation.
        stamp: The stamp of the attempt.
        count: The number of acknowledged entries before the write was sent.

    Returns:
        None if it is unknown, because too many entries were acknowledged since.
    """
    pending = (document or {}).get("_pending", ())
    total, *names = _acknowledged(document)
    effects = map(OutboxEntry.read, pending)
    if any((effect.operation, effect.stamp) == (operation, stamp) for effect in effects):
        return True
    if _name(operation, stamp) in names:
        return True
    return None if total - count > MAX_ACKNOWLEDGED_NAMES else False


def _name(operation: str, stamp: int) -> str:
    """Return a name of a write; a retry of its operation elsewhere has another stamp."""
    return f"{operation} {stamp}"


def _acknowledged(document: Mapping[str, Any] | None) -> list[Any]:
    text = (document or {}).get("_acknowledged")
    return [0] if text is None else orjson.loads(text)
