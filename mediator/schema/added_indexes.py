"""Adding an index to a schema, as the merge patch that does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mediator.schema.limits import INDEXED_ELEMENTS
from mediator.schema.types import ARRAYS

__all__ = ["index_patch"]


def index_patch(
    document: Mapping[str, Any], class_name: str, names: Sequence[str]
) -> dict[str, Any] | None:
    """Return what to merge into a complete schema for an index of a field, or of several together.

    None: the schema has the index, or lacks one of the fields. A list or set gets the bound that
    its index requires.
    """
    class_ = document["classes"].get(class_name, {"fields": {}})
    if not all(name in class_["fields"] for name in names):
        return None
    if len(names) > 1:
        there, added = class_["indexes"], {"fields": list(names)}
        return None if added in there else _of(class_name, {"indexes": [*there, added]})
    field = class_["fields"][names[0]]
    members: dict[str, Any] = {"index": True}
    if field["type"] in ARRAYS and field.get("max_length", INDEXED_ELEMENTS + 1) > INDEXED_ELEMENTS:
        members["max_length"] = INDEXED_ELEMENTS
    return None if field["index"] else _of(class_name, {"fields": {names[0]: members}})


def _of(class_name: str, members: dict[str, Any]) -> dict[str, Any]:
    return {"classes": {class_name: members}}
