"""Addresses of resources, and the keys that a filter tests them by (docs/sketch-wire.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias
from urllib.parse import quote

import orjson

from sketch.protocol.keys import canonical_query, key_of_query
from sketch.protocol.wire import GroupMap

__all__ = ["ObjectResource", "QueryResource", "Readable", "object_key", "segment"]

_ROUTES = frozenset({"query", "import", "export"})
_UNESCAPED = "!'()*~"
"""What JavaScript's encodeURIComponent leaves as it is: both clients write the same address."""

_SEGMENTS = 10_000
"""Segments that are remembered: each read needs some four times those of its address."""


@lru_cache(_SEGMENTS)
def segment(text: str) -> str:
    """Return a name or an id as a segment of a path.

    Raises:
        ValueError: It cannot be one: it is empty, ``.`` or ``..``, or holds lone surrogates.
    """
    if text in {"", ".", ".."}:
        raise ValueError(f"{text!r} cannot be part of an address")
    escaped = quote(text, safe=_UNESCAPED)
    # An id that is also the name of a route is told apart by an escape it would not need.
    return f"%{ord(text[0]):x}{text[1:]}" if text in _ROUTES else escaped


def object_key(class_name: str, id_: str, group: str) -> str:
    return f"{class_name}/{id_}#{group}"


@dataclass(frozen=True, slots=True)
class ObjectResource:
    """An object, or some of its fields: in order and each once; empty: all."""

    class_name: str
    id: str
    fields: tuple[str, ...] = ()

    @classmethod
    def of(cls, class_name: str, id_: str, fields: Iterable[str] | None = None) -> ObjectResource:
        """Return the resource in its canonical form; only that may be cached."""
        if fields is None:
            return cls(class_name, id_)
        names = tuple(sorted({fields} if isinstance(fields, str) else set(fields)))
        if not names:
            raise ValueError("fields must name at least one field")
        return cls(class_name, id_, names)

    @property
    def path(self) -> str:
        path = f"{segment(self.class_name)}/{segment(self.id)}"
        if not self.fields:
            return path
        return f"{path}?fields={','.join(quote(name, safe='') for name in self.fields)}"

    def dated_path(self, max_age_s: int) -> str:
        return f"{self.path}{'&' if self.fields else '?'}max_age={max_age_s}"

    def groups(self, group_map: GroupMap) -> tuple[str, ...]:
        """Return the groups that the resource shows; empty if the map does not name them all."""
        groups = group_map.get(self.class_name, {})
        if not self.fields:
            return tuple(groups)
        wanted = set(self.fields)
        shown = {group: wanted.intersection(names) for group, names in groups.items()}
        if set().union(*shown.values()) != wanted:
            return ()
        return tuple(group for group, names in shown.items() if names)

    def keys(self, group_map: GroupMap) -> tuple[str, ...]:
        """Return the keys that a filter tests it by; empty if the map does not name them all."""
        groups = self.groups(group_map)
        return tuple(object_key(self.class_name, self.id, group) for group in groups)


@dataclass(frozen=True, slots=True)
class QueryResource:
    """The result of a query, which is in its canonical form."""

    class_name: str
    query: str

    @classmethod
    def of(cls, class_name: str, parameters: Mapping[str, Any]) -> QueryResource:
        """Return the result in its canonical form; only that may be cached."""
        pairs = ((name, _text(name, value)) for name, value in parameters.items())
        return cls(class_name, canonical_query(pairs))

    @property
    def path(self) -> str:
        path = segment(self.class_name)
        return f"{path}?{self.query}" if self.query else path

    def dated_path(self, _: int) -> None:
        """Results have no dated answers."""

    def keys(self, group_map: GroupMap) -> tuple[str, ...]:
        """Return the key that a filter tests it by; empty if the map does not have the class."""
        known = self.class_name in group_map
        return (key_of_query(self.class_name, self.query),) if known else ()


Readable: TypeAlias = ObjectResource | QueryResource


def _text(name: str, value: Any) -> str:
    """Encode a parameter: text as it is, the elements of a list with their commas escaped."""
    if name == "fields" and not isinstance(value, str):
        value = sorted(set(value))
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return ",".join(_text("", each).replace("%", "%25").replace(",", "%2C") for each in value)
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
