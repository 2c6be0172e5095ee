"""Addresses of resources, and the keys that a filter tests them by (docs/sketch-wire.md)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote

from sketch.wire import GroupMap

__all__ = ["Resource", "object_key", "segment"]

_ROUTES = frozenset({"query", "import", "export"})
_UNESCAPED = "!'()*~"
"""What JavaScript's encodeURIComponent lets be: both clients spell an address alike."""


def segment(text: str) -> str:
    """Return a name or an id as a segment of a path.

    Raises:
        ValueError: It cannot be one: it is empty, ``.`` or ``..``, or holds lone surrogates.
    """
    if text in {"", ".", ".."}:
        raise ValueError(f"{text!r} cannot be part of an address")
    escaped = quote(text, safe=_UNESCAPED)
    return f"%{ord(text[0]):x}{text[1:]}" if text in _ROUTES else escaped


def object_key(class_name: str, id_: str, group: str) -> str:
    """Return the key of one cache group of an object."""
    return f"{class_name}/{id_}#{group}"


@dataclass(frozen=True, slots=True)
class Resource:
    """An object, or some of its fields.

    Attributes:
        class_name: Class of the object.
        id: The object, not percent-encoded.
        fields: Names of the fields, in order and each once; empty: all.
    """

    class_name: str
    id: str
    fields: tuple[str, ...] = ()

    @classmethod
    def of(cls, class_name: str, id_: str, fields: Iterable[str] | None = None) -> Resource:
        """Return the resource in its canonical spelling; only that one may be cached.

        Raises:
            ValueError: `fields` names none.
        """
        if fields is None:
            return cls(class_name, id_)
        names = tuple(sorted({fields} if isinstance(fields, str) else set(fields)))
        if not names:
            raise ValueError("fields must name at least one field")
        return cls(class_name, id_, names)

    @property
    def path(self) -> str:
        """Path and query, below the address of the database."""
        path = f"{segment(self.class_name)}/{segment(self.id)}"
        if not self.fields:
            return path
        return f"{path}?fields={','.join(quote(name, safe='') for name in self.fields)}"

    def groups(self, group_map: GroupMap) -> tuple[str, ...]:
        """Return the groups that the resource shows; none if the map does not tell them all."""
        groups = group_map.get(self.class_name, {})
        if not self.fields:
            return tuple(groups)
        wanted = set(self.fields)
        shown = {group: wanted.intersection(names) for group, names in groups.items()}
        if set().union(*shown.values()) != wanted:
            return ()
        return tuple(group for group, names in shown.items() if names)
