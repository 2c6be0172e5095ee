"""Indexed paths within documents and maps, and which paths can be indexed.

Strings and numbers at a path are indexed, whichever occur.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from mediator.base.errors import Location
from mediator.schema.limits import DOCUMENT_DEPTH, PATH_CHARACTERS
from mediator.schema.scalars import text_error
from mediator.schema.tree import Field
from mediator.schema.types import FieldType

__all__ = ["INDEXED_ITEMS", "is_indexable", "mistakes_of_indexed_paths"]

INDEXED_ITEMS: Final = frozenset({FieldType.STRING, FieldType.INTEGER, FieldType.FLOAT})
"""Item types of maps that can be indexed; in a document, their JSON counterparts."""


def mistakes_of_indexed_paths(field: Field, at: str) -> Iterator[Location]:
    """Yield the reasons why the paths of a field cannot be indexed."""
    if field.indexed_paths and field.type not in (FieldType.DOCUMENT, FieldType.MAP):
        yield Location(at, f"has no meaning for type {field.type}")
        return
    for i, keys in enumerate(field.indexed_keys):
        if keys in field.indexed_keys[:i]:
            yield Location(f"{at}/{i}", "must not be there twice")
        elif mistake := _mistake(field, keys):
            yield Location(f"{at}/{i}", mistake)


def is_indexable(field: Field, keys: Sequence[str]) -> bool:
    """Whether a path within a field can be indexed."""
    fits = len(".".join(keys)) <= PATH_CHARACTERS
    return field.type in (FieldType.DOCUMENT, FieldType.MAP) and fits and not _mistake(field, keys)


def _mistake(field: Field, keys: Sequence[str]) -> str | None:
    for key in keys:
        if error := text_error(key):
            return error
    if any(key.isdecimal() for key in keys[1:]):
        # MongoDB refuses to write an array of objects where such a path has an index.
        return "must not have a number as a key, except as the first one"
    is_map, document_keys = field.type is FieldType.MAP, list(keys)
    if is_map and field.items is not FieldType.DOCUMENT:
        return _mistake_in_map(field, keys)
    if is_map and not (document_keys := document_keys[1:]):
        return "must lead into the documents that are the items"
    max_depth = DOCUMENT_DEPTH
    return (
        f"leads deeper than {max_depth} levels of a document"
        if len(document_keys) > max_depth
        else None
    )


def _mistake_in_map(field: Field, keys: Sequence[str]) -> str | None:
    if len(keys) > 1:
        return "must be one key, as the items are no documents"
    if field.items not in INDEXED_ITEMS:
        return f"must be of a map of {', '.join(sorted(INDEXED_ITEMS))} or document"
    return None
