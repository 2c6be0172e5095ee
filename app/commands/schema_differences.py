"""What two schemas differ in, node by node: the database, its classes, and their fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import orjson

__all__ = ["Difference", "differences"]

_Document: TypeAlias = Mapping[str, Any]

_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class Difference:
    """One line of a comparison: a node that is added or removed, or a member that is changed.

    Attributes:
        node: ``class``, ``class.field``, or empty for the database.
        detail: The members of a field, or what a member was and is.
    """

    kind: Literal["+", "-", "~"]
    node: str
    detail: str

    def __str__(self) -> str:
        return " ".join(filter(None, (self.kind, self.node or "the database", self.detail)))


def differences(before: _Document | None, after: _Document) -> list[Difference]:
    """Compare complete schemas, as the service returns them; None: there is none so far."""
    old = dict(_nodes(before)) if before is not None else {}
    new = dict(_nodes(after))
    found = [Difference("-", name, "") for name in old if name not in new]
    for name, members in new.items():
        if name in old:
            found += _changed(name, old[name], members)
        else:
            found.append(Difference("+", name, _shown(members) if "type" in members else ""))
    return found


def _nodes(schema: _Document) -> Iterator[tuple[str, _Document]]:
    yield "", _without(schema, "classes")
    for class_name, class_ in schema["classes"].items():
        yield class_name, _without(class_, "fields")
        for name, field in class_["fields"].items():
            yield f"{class_name}.{name}", field


def _without(members: _Document, name: str) -> _Document:
    return {key: value for key, value in members.items() if key != name}


def _changed(node: str, before: _Document, after: _Document) -> Iterator[Difference]:
    old, new = dict(_leaves(before)), dict(_leaves(after))
    for path in dict.fromkeys([*old, *new]):
        was, is_ = old.get(path, _ABSENT), new.get(path, _ABSENT)
        if was != is_:
            yield Difference("~", node, f"{path}: {_value(was)} → {_value(is_)}")


def _leaves(members: _Document, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in members.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{path}{name}.")
        else:
            yield path + name, value


def _value(value: Any) -> str:
    return "none" if value is _ABSENT else orjson.dumps(value).decode()


def _shown(field: _Document) -> str:
    """Return the members of a field that say something, its type first."""
    return _value({name: value for name, value in field.items() if value not in (None, False, [])})
