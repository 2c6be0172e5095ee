"""Helpers of all stores' outboxes: images of changes, positions, and adaptive pages.

A change can be older than the schema with which it is read, so fields that were removed, or have
another type by now, are left out: an old entry must not block the changes behind it.
"""

from __future__ import annotations

import logging
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from mediator.base.page_size import PageSize
from mediator.schema.scalars import Encoder
from mediator.schema.types import FieldType, Value
from mediator.schema.values import encoder
from mediator.stores.port import Fragment, LogEntry, LogPage, StoreTimeout

__all__ = [
    "JSON_DECODERS",
    "PYTHON_TYPES",
    "UNREADABLE",
    "format_position",
    "image_of",
    "parse_position",
    "read_entries",
]

log = logging.getLogger(__name__)

UNREADABLE: Final = (ValueError, LookupError, TypeError, ArithmeticError)
"""Errors of decoding a malformed text."""

PYTHON_TYPES: Final[Mapping[FieldType, type]] = {
    FieldType.STRING: str,
    FieldType.REFERENCE: str,
    FieldType.INTEGER: int,
    FieldType.FLOAT: float,
    FieldType.DECIMAL: Decimal,
    FieldType.BOOLEAN: bool,
    FieldType.TIMESTAMP: datetime,
    FieldType.BINARY: bytes,
    FieldType.DOCUMENT: dict,
    FieldType.LIST: list,
    FieldType.SET: list,
    FieldType.MAP: dict,
}
"""The Python type of values, by the type of the field."""

JSON_DECODERS: Final[Mapping[FieldType, Callable[[Any], Any]]] = {
    FieldType.FLOAT: float,
    FieldType.DECIMAL: Decimal,
    FieldType.TIMESTAMP: datetime.fromisoformat,
    FieldType.BINARY: b64decode,
}
"""Decoders of the JSON form of our own, valid values; other types are JSON already."""


def image_of(
    fragment: Fragment,
    stored: Iterable[tuple[str, Any]],
    read: Callable[[str, Any], Value],
) -> dict[str, Any]:
    """Return fields in their JSON form.

    Args:
        fragment: The current class.
        stored: Names of fields with their stored values.
        read: Decodes the stored value of a field of the fragment.
    """
    types = _types(fragment)
    image: dict[str, Any] = {}
    for name, raw in stored:
        if name not in types:
            continue
        python_type, items, encode = types[name]
        try:
            value = read(name, raw)
        except UNREADABLE:
            _warn(fragment, name)
            continue
        if value is None:
            image[name] = None
        elif type(value) is python_type and (items is None or _all_are(items, value)):
            image[name] = value if encode is None else encode(value)
        else:
            _warn(fragment, name)
    return image


def _all_are(python_type: type, collection: Any) -> bool:
    members = collection.values() if isinstance(collection, dict) else collection
    return all(type(member) is python_type for member in members)


@lru_cache(maxsize=512)
def _types(fragment: Fragment) -> Mapping[str, tuple[type, type | None, Encoder | None]]:
    """Return for each field the types of its values and items, and its encoder."""
    return {
        name: (
            PYTHON_TYPES[field.type],
            PYTHON_TYPES[field.items] if field.items else None,
            encoder(field),
        )
        for name, field in fragment.fields.items()
    }


# Cached, so that it logs only once for all changes of a field.
@lru_cache(maxsize=512)
def _warn(fragment: Fragment, name: str) -> None:
    log.warning(
        "%s: changes have values of %s/%s.%s that are not of its type; they are left out",
        fragment.system,
        fragment.database,
        fragment.class_name,
        name,
    )


_WIDTH: Final = 20
"""Decimal digits of a 64-bit number."""

_ZERO: Final = "0"

_MAX_BYTES: Final = 2**24
"""Size of entries after which `read_entries` stops: they are in memory several times."""


def format_position(major: str, minor: str) -> str:
    """Return the position for two 64-bit numbers in decimal; positions sort like the numbers."""
    return f"{major.rjust(_WIDTH, _ZERO)}-{minor.rjust(_WIDTH, _ZERO)}"


def parse_position(position: str | None) -> tuple[int, int]:
    """Return the two numbers of a position; None is before all positions."""
    major, _, minor = (position or "0-0").partition("-")
    return int(major), int(minor)


async def read_entries(
    page_size: PageSize,
    after: str | None,
    limit: int,
    page: Callable[[str | None, int], Awaitable[list[LogEntry]]],
) -> LogPage:
    """Read up to `limit` entries beyond a position, fewer if these are large.

    None is before the oldest entry.
    """
    entries: list[LogEntry] = []
    size = 0
    while len(entries) < limit and size < _MAX_BYTES:
        count = min(page_size.count, limit - len(entries))
        try:
            batch = await page(after, count)
        except StoreTimeout:
            page_size.failed()
            raise
        sizes = [entry.size for entry in batch]
        page_size.succeeded(sizes)
        entries += batch
        size += sum(sizes)
        if len(batch) < count:
            return LogPage(entries, is_last=True)
        after = entries[-1].position
    return LogPage(entries, is_last=False)
