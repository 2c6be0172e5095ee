"""Bounds on the size of records, so that MongoDB accepts a document after each of its changes.

MongoDB accepts no document, and no statement, of more than 16 MiB. A document has the values of its
record (BSON), their state before the pending changes (``_base``, JSON), the entries of these
changes (``_pending``, JSON) and remembered operations (``_ops``). Three bounds keep it small:

1. The values of a record have at most `MAX_VALUES_BYTES`, as BSON and as JSON.
2. The same bounds the additions of one write to the lists: its entry, and its remembered result.
3. A write applies only if the document then has at most `MAX_DOCUMENT_BYTES`, three times as many.

Once its changes are relayed and its operations archived, a document has only values and base, so a
write within bounds 1 and 2 is also within bound 3: it waits for the relay, but not for ever. An
acknowledgement replaces base and entries by a new base: the resulting values, whose JSON is no
longer than its sources, except for numbers (20 KB in 500 fields). Its statement has that base, and
entries of `MAX_VALUES_BYTES` or a single one: less than `MAX_DOCUMENT_BYTES`. The megabyte from
there to 16 MiB is for members with separate bounds: versions, claims, fences, and the redo record
of a blind write.

``_bytes`` is an upper bound of the document's size. Every write adds its additions, and nothing is
subtracted until the bound exceeds `MAX_VALUES_BYTES`: then the next write reads the record, and
measures its document.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson
from bson import encode

from mediator.stores.mongo.layout import Document, Layout

__all__ = [
    "MAX_DOCUMENT_BYTES",
    "MAX_VALUES_BYTES",
    "MEASURED",
    "SERVER_LIMIT_BYTES",
    "RecordFull",
    "RecordTooLarge",
    "require_room",
    "size_after",
    "size_of",
    "text_size",
]

MAX_VALUES_BYTES: Final = 5 * 2**20
"""Maximum size of the values of a record, and of the additions of one write to the lists."""

MAX_DOCUMENT_BYTES: Final = 3 * MAX_VALUES_BYTES
"""Maximum size of a document after a write."""

SERVER_LIMIT_BYTES: Final = 2**24 - 2**19
"""Maximum size of a document, and of a statement, in MongoDB, less a margin for uncounted bytes."""

MEASURED: Final = "_measured"
"""Added to a document that was read in part: its full size in bytes."""

_JSON_PER_BSON: Final = 6
"""A control character has one byte in BSON and six in JSON: the largest growth of any value."""


class RecordTooLarge(Exception):
    """A record, or the additions of a write, would be too large; nothing happens."""


class RecordFull(Exception):
    """A record takes no write of this size until its changes are relayed; nothing happens."""


def size_of(document: Mapping[str, Any]) -> int:
    """Return the bytes of a document."""
    return len(encode(document))


def text_size(text: str) -> int:
    """Return the bytes of a text."""
    return len(text) if text.isascii() else len(text.encode())


def size_after(before: Mapping[str, Any] | None, after: Document, added: int) -> int:
    """Return an upper bound of the size of a document after a write, in bytes.

    Args:
        before: The document as it was read, measured if it can be large; None: it is absent.
        after: Its values after the write.
        added: The bytes that the write adds to its lists.
    """
    document = before or {}
    document_bytes = document.get(MEASURED, document.get("_bytes", 0))
    return int(document_bytes) - size_of(document.get("values", {})) + size_of(after) + added


def require_room(layout: Layout, after: Document, added: int, size: int, *, decided: bool) -> None:
    """Check that a write leaves a document of this size (`size_after`).

    Args:
        decided: Whether the write is committed: then it is applied if there is any room for it.

    Raises:
        RecordTooLarge: The write can never be applied.
        RecordFull: The write can be applied once others are relayed.
    """
    if size > (MAX_DOCUMENT_BYTES if decided else MAX_VALUES_BYTES):
        stored = size_of(after)
        if max(added, stored, _json_size(layout, after, stored)) > MAX_VALUES_BYTES:
            raise RecordTooLarge
    if size > MAX_DOCUMENT_BYTES:
        raise RecordFull


def _json_size(layout: Layout, values: Document, size: int) -> int:
    """Return the maximum size of values as JSON, including unknown fields."""
    known_json = orjson.dumps(layout.effects.values(layout.decode_all(values)))
    unknown_bytes = size - size_of(layout.stored_values({"values": values}))
    return len(known_json) + _JSON_PER_BSON * unknown_bytes
