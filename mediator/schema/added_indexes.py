"""The merge patch that adds an index to a schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mediator.schema.limits import INDEXED_ELEMENTS
from mediator.schema.types import ARRAYS

__all__ = ["index_patch"]


def index_patch(
    document: Mapping[str, Any], class_name: str, names: Sequence[str]
) -> dict[str, Any] | None:
    """Return the merge patch that adds an index of one or several fields to a complete schema.

    A name can be a path within a field, ``address.city``. None: the schema has the index, or lacks
    one of the fields. A list or set gets the bound that its index requires.
    """
    class_ = document["classes"].get(class_name, {"fields": {}})
    name, _, path = names[0].partition(".")
    if path and name in class_["fields"]:
        paths = class_["fields"][name].get("indexed_paths", [])
        added = {"indexed_paths": [*paths, path]}
        return None if path in paths else _class_patch(class_name, {"fields": {name: added}})
    if not all(name in class_["fields"] for name in names):
        return None
    if len(names) > 1:
        present, index = class_["indexes"], {"fields": list(names)}
        return (
            None if index in present else _class_patch(class_name, {"indexes": [*present, index]})
        )
    field = class_["fields"][name]
    members: dict[str, Any] = {"index": True}
    if field["type"] in ARRAYS and field.get("max_length", INDEXED_ELEMENTS + 1) > INDEXED_ELEMENTS:
        members["max_length"] = INDEXED_ELEMENTS
    return None if field["index"] else _class_patch(class_name, {"fields": {names[0]: members}})


def _class_patch(class_name: str, members: dict[str, Any]) -> dict[str, Any]:
    return {"classes": {class_name: members}}
