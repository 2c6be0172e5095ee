"""Query results as resources: the spelling of their addresses, their keys (docs/sketch-wire.md).

The key of a query's result is ``class//`` and its parameters as they are spelled in its address. No
object has such a key, as no id has a slash.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

__all__ = ["LONGEST", "key_of_query", "query_of_key", "spelled"]

LONGEST: Final = 1_000
"""Bytes of a query that is cached; longer ones are answered, but not kept."""

_UNESCAPED: Final = "!'()*~,"
"""What JavaScript's encodeURIComponent lets be, and the comma of lists."""
_MARK: Final = "//"


def spelled(parameters: Iterable[tuple[str, str]]) -> str:
    """Return parameters as the query of an address, in the one spelling that is cached.

    Each is escaped as encodeURIComponent does it, but for commas; then they are sorted.
    """
    escape = _UNESCAPED
    return "&".join(
        sorted(f"{quote(n, safe=escape)}={quote(v, safe=escape)}" for n, v in parameters)
    )


def key_of_query(class_name: str, spelling: str) -> str:
    """Return the key of a query's result."""
    return f"{class_name}{_MARK}{spelling}"


def query_of_key(key: str) -> str | None:
    """Return the spelling of the query whose result has this key; None for other keys."""
    _, mark, spelling = key.partition(_MARK)
    return spelling if mark else None
