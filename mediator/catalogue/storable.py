"""Makes foreign texts, such as messages of libraries, storable in PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["REPLACEMENT", "storable", "storable_text"]

_REFUSED: Final = re.compile("[\0\ud800-\udfff]")
REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


def storable_text(text: str) -> str:
    """Replace NUL and lone surrogates, which PostgreSQL cannot store, by U+FFFD."""
    return _REFUSED.sub(REPLACEMENT, text)


def storable(document: Any) -> Any:
    """Return a JSON document with all its texts and names made storable.

    It is for documents that only people read: users' values are refused instead, never changed.
    """
    if isinstance(document, str):
        return storable_text(document)
    if isinstance(document, Mapping):
        return {storable(name): storable(value) for name, value in document.items()}
    if isinstance(document, list | tuple):
        return [storable(item) for item in document]
    return document
