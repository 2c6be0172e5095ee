"""Naming rules, and the ids of objects (docs/schema.md, "A class")."""

from __future__ import annotations

import re
from typing import Final

from mediator.base.errors import Invalid, Location
from mediator.schema.limits import ID_BYTES

__all__ = ["FIELD_NAME", "NAME", "check_id", "id_error"]

NAME: Final = re.compile("[a-z][a-z0-9_]{0,62}")
"""Names of databases, classes, cache groups and systems."""

FIELD_NAME: Final = re.compile("[A-Za-z][A-Za-z0-9_]{0,62}")

_REFUSED = re.compile("[/\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def id_error(text: str) -> str | None:
    """Return why an id is invalid, or None; ids are not normalised, but compared byte by byte."""
    if not text:
        return "must not be empty"
    # The length in characters bounds the text before it is searched or encoded.
    if len(text) > ID_BYTES:
        return f"must be at most {ID_BYTES} bytes of UTF-8"
    if text in {".", ".."}:
        return "must not be '.' or '..'"
    if _REFUSED.search(text):
        return "must not contain '/', control characters or lone surrogates"
    if not text.isascii() and len(text.encode()) > ID_BYTES:
        return f"must be at most {ID_BYTES} bytes of UTF-8"
    return None


def check_id(text: str, pointer: str = "id") -> str:
    """Return an id unchanged; raises `Invalid` at `pointer`, see `id_error`."""
    if (error := id_error(text)) is not None:
        raise Invalid(f"The id {error}.", locations=[Location(pointer, error)])
    return text
