"""How large a record may become, so that MongoDB takes every document on the way of its changes.

MongoDB takes no document, and no statement, of more than 16 MiB. A document has the values of its
record (BSON), what they were before the changes that wait (``_base``, JSON), the entries of these
changes (``_pending``, JSON) and remembered operations (``_ops``). Three bounds keep it small:

1. The values of a record have at most `LARGEST` bytes, as BSON and as JSON.
2. So has what one write adds to the lists: its entry, and its result if that is remembered.
3. A write applies only if the document has at most `MOST` bytes then, three times as many.

Once its changes are relayed and its operations are archived, a document has values and base alone.
So what keeps 1 and 2 keeps 3 by then: it waits for the relay, and not for ever. To acknowledge
changes is to put another base in the place of a base and entries: the values that they lead to,
which are no longer in JSON than what they were made of, but for numbers (20 KB in 500 fields). Its
statement has that base, and entries of `LARGEST` bytes or a single one: less than `MOST`. The
megabyte from there to 16 MiB is for what has bounds of its own: versions, claims, fences, and the
redo record of a blind write.

``_bytes`` says how many bytes a document has at most. Every write adds what it adds itself, and
nothing is subtracted until that exceeds `LARGEST`: then the next write reads the record, and
measures its document.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson
from bson import encode

from mediator.stores.mongo.layout import Document, Layout

__all__ = [
    "LARGEST",
    "MEASURED",
    "MOST",
    "TAKEN",
    "RecordFull",
    "RecordTooLarge",
    "require_room",
    "size_after",
    "size_of",
    "text_size",
]

LARGEST: Final = 5 * 2**20
"""Bytes of the values of a record, and of what one write adds to the lists."""

MOST: Final = 3 * LARGEST
"""Bytes of a document after a write."""

TAKEN: Final = 2**24 - 2**19
"""Bytes of a document, and of a statement, that MongoDB takes with all that is not counted."""

MEASURED: Final = "_measured"
"""Beside the members of a document that was read in part: how many bytes the whole of it has."""

_JSON_PER_BSON: Final = 6
"""A control character has one byte in BSON, and six in JSON; nothing else grows more."""


class RecordTooLarge(Exception):
    """A record, or what a write adds to it, would be larger than it may be; nothing happens."""


class RecordFull(Exception):
    """A record takes no such write until its changes are relayed; nothing happens."""


def size_of(document: Mapping[str, Any]) -> int:
    """Return the bytes of a document."""
    return len(encode(document))


def text_size(text: str) -> int:
    """Return the bytes of a text."""
    return len(text) if text.isascii() else len(text.encode())


def size_after(before: Mapping[str, Any] | None, after: Document, added: int) -> int:
    """Return how many bytes a document has at most after a write.

    Args:
        before: The document as it was read, measured if it may be large; None: there was none.
        after: Its values after the write.
        added: The bytes that the write adds to its lists.
    """
    document = before or {}
    counted = document.get(MEASURED, document.get("_bytes", 0))
    return int(counted) - size_of(document.get("values", {})) + size_of(after) + added


def require_room(layout: Layout, after: Document, added: int, size: int, *, decided: bool) -> None:
    """Check that a write leaves a document of this size (`size_after`).

    Args:
        decided: Whether the write is committed: then it is applied if there is room for it at all.

    Raises:
        RecordTooLarge: It never will be applied.
        RecordFull: It will be once others are relayed.
    """
    if size > (MOST if decided else LARGEST):
        stored = size_of(after)
        if max(added, stored, _json_size(layout, after, stored)) > LARGEST:
            raise RecordTooLarge
    if size > MOST:
        raise RecordFull


def _json_size(layout: Layout, values: Document, size: int) -> int:
    """Return the most bytes that values have as JSON, fields that are not known included."""
    known = orjson.dumps(layout.effects.values(layout.decode_all(values)))
    unknown = size - size_of(layout.stored_values({"values": values}))
    return len(known) + _JSON_PER_BSON * unknown
