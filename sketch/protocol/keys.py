"""Query results as resources: their canonical addresses and their keys (docs/sketch-wire.md).

The key of a query's result is ``class//`` and its canonical query. No object has such a key, as no
id has a slash.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final
from urllib.parse import quote

__all__ = [
    "MAX_QUERY_BYTES",
    "TAG_DIGITS",
    "canonical_query",
    "key_of_query",
    "query_of_key",
    "tag_of",
]

MAX_QUERY_BYTES: Final = 1_000
"""Longer queries are answered, but not cached."""

_UNESCAPED: Final = "!'()*~,"
"""Not escaped by JavaScript's encodeURIComponent, and the comma of lists."""
_SEPARATOR: Final = "//"


def canonical_query(parameters: Iterable[tuple[str, str]]) -> str:
    """Return parameters as the query of a URL, in the only form that is cached.

    They are escaped as encodeURIComponent does it, except commas, and sorted.
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
"""All tags have this length, so that none contains another (RFC 9875 grants 32 characters)."""


def tag_of(database: str, key: str) -> str:
    return blake2b(f"{database}/{key}".encode(), digest_size=TAG_DIGITS // 2).hexdigest()
