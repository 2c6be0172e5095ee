"""Differences between two schemas, by member: added, removed and changed ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from mediator.base.offload import throttled
from mediator.schema.parse import parse_schema
from mediator.schema.renames import Renames
from mediator.schema.render import schema_document

__all__ = ["Difference", "change_counts", "differences", "renames_as_differences"]

Members = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between two schemas: a node, or a member of one.

    Attributes:
        node: ``*`` for the database, ``articles`` for a class, ``articles.hits`` for a field.
        member: The member of the node, as ``cache.max_ttl_s``; None for the node itself, whose
            values are its members except those that have their defaults.
        before: The value in the first schema.
        after: The value in the second schema.
    """

    kind: Literal["added", "removed", "changed"]
    node: str
    member: str | None
    before: Any
    after: Any


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """Compare two complete schemas as the service returns them; empty if they are equal."""
    return list(_differences(dict(_nodes(before)), dict(_nodes(after))))


def renames_as_differences(renames: Renames) -> Iterator[Difference]:
    """Yield renames as changes of the member ``name`` of fields, under their new names."""
    for class_name, names in renames.items():
        for old, new in names.items():
            yield Difference("changed", f"{class_name}.{new}", "name", old, new)


def change_counts(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, int]:
    """Count the nodes (the database, classes, fields) that are added, removed and changed."""
    kinds: dict[str, str] = {}
    for difference in differences(before, after):
        kinds[difference.node] = difference.kind if difference.member is None else "changed"
    return {kind: Counter(kinds.values())[kind] for kind in ("added", "removed", "changed")}


def _differences(before: dict[str, Members], after: dict[str, Members]) -> Iterator[Difference]:
    for node in throttled(sorted(before.keys() | after.keys())):
        old, new = before.get(node), after.get(node)
        if old is None and new is not None:
            yield Difference("added", node, None, None, _without_defaults(node, new))
        elif old is not None and new is None:
            yield Difference("removed", node, None, _without_defaults(node, old), None)
        elif old is not None and new is not None:
            yield from _member_differences(node, old, new)


def _member_differences(node: str, old: Members, new: Members) -> Iterator[Difference]:
    for member in sorted(old.keys() | new.keys()):
        if member not in old:
            yield Difference("added", node, member, None, new[member])
        elif member not in new:
            yield Difference("removed", node, member, old[member], None)
        elif old[member] != new[member]:
            yield Difference("changed", node, member, old[member], new[member])


def _nodes(schema: Mapping[str, Any]) -> Iterator[tuple[str, Members]]:
    if schema:
        yield "*", dict(_members(schema, "classes"))
    for name, class_ in schema.get("classes", {}).items():
        yield name, dict(_members(class_, "fields"))
        for field, members in class_["fields"].items():
            yield f"{name}.{field}", dict(_members(members))


def _members(tree: Mapping[str, Any], skipped: str = "", prefix: str = "") -> Iterator[Any]:
    for name, value in tree.items():
        if isinstance(value, dict) and value and name != skipped:
            yield from _members(value, prefix=f"{prefix}{name}.")
        elif name != skipped:
            yield f"{prefix}{name}", value


def _without_defaults(node: str, members: Members) -> Members:
    """Omit members that have their defaults."""
    defaults = _defaults()[0 if node == "*" else 1 + node.count(".")]
    return {
        name: value
        for name, value in members.items()
        if name not in defaults or defaults[name] != value
    }


@cache
def _defaults() -> tuple[Members, ...]:
    """Return the members of a database, a class and a field in a minimal schema."""
    minimal = {"classes": {"c": {"fields": {"f": {"type": "string"}}}}}
    database, class_, field = dict(_nodes(schema_document(parse_schema("d", minimal)))).values()
    del field["type"]
    return database, class_, field
