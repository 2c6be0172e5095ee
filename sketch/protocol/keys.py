"""Query results as resources: their canonical addresses and their keys (docs/sketch-wire.md).

The key of a query's result is ``class//`` and its canonical query. No object has such a key, as no
id has a slash.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final
from urllib.parse import quote

__all__ = ["LONGEST", "TAG_DIGITS", "canonical_query", "key_of_query", "query_of_key", "tag_of"]

LONGEST: Final = 1_000
"""Bytes of a query that is cached; longer ones are answered, but not cached."""

_UNESCAPED: Final = "!'()*~,"
"""What JavaScript's encodeURIComponent does not escape, and the comma of lists."""
_SEPARATOR: Final = "//"


def canonical_query(parameters: Iterable[tuple[str, str]]) -> str:
    """Return parameters as the query of an address, in the one form that is cached.

    Each is escaped as encodeURIComponent does it, but for commas; then they are sorted.
    """
    escape = _UNESCAPED
    return "&".join(
        sorted(f"{quote(n, safe=escape)}={quote(v, safe=escape)}" for n, v in parameters)
    )


def key_of_query(class_name: str, query: str) -> str:
    return f"{class_name}{_SEPARATOR}{query}"


def query_of_key(key: str) -> str | None:
    """Return the canonical query whose result has this key; None for other keys."""
    _, separator, query = key.partition(_SEPARATOR)
    return query if separator else None


TAG_DIGITS: Final = 32
"""All tags are as long, so that none is a part of another (RFC 9875 grants 32 characters)."""


def tag_of(database: str, key: str) -> str:
    return blake2b(f"{database}/{key}".encode(), digest_size=TAG_DIGITS // 2).hexdigest()
