"""The present database under new names of its fields, which a change that renames is compared with.

All that follows (what moves, what is tightened, which group and system a field is pinned to, which
override it has) goes by names, so it takes a renamed field for the one that it was. Only the layout
knows that it is stored under another name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mediator.catalogue.stored_databases import StoredDatabase
from mediator.schema.renames import Renames, renamed_document

__all__ = ["renamed"]


def renamed(stored: StoredDatabase, renames: Renames) -> StoredDatabase:
    """Return a database as if its fields had always had their new names."""
    layout = {name: _layout(each, renames.get(name, {})) for name, each in stored.layout.items()}
    overrides = {_node(node, renames): each for node, each in stored.overrides.items()}
    document = renamed_document(stored.document, renames)
    return replace(stored, document=document, layout=layout, overrides=overrides)


def _layout(layout: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    groups = {
        group: {**placed, "fields": [names.get(name, name) for name in placed["fields"]]}
        for group, placed in layout["groups"].items()
    }
    former = layout["names"]
    kept = {names.get(name, name): stored for name, stored in former.items()}
    new = {new: former.get(old, old) for old, new in names.items()}
    # Constraints that are being built are abandoned: they would have other names.
    building = None if names else layout.get("building")
    return {
        **layout,
        "groups": groups,
        "names": {**kept, **new},
        "freed": sorted({*layout["freed"], *names}),
        "building": building,
    }


def _node(node: str, renames: Renames) -> str:
    class_name, _, field = node.partition(".")
    name = renames.get(class_name, {}).get(field)
    return node if name is None else f"{class_name}.{name}"
