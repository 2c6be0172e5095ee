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
"""Unchanged by JavaScript's encodeURIComponent: both clients write the same address."""

_MAX_CACHED_SEGMENTS = 10_000
"""Each read needs the segments of its address about four times."""


@lru_cache(_MAX_CACHED_SEGMENTS)
def segment(text: str) -> str:
    """Return a name or an id as a segment of a path.

    Raises:
        ValueError: It is empty, ``.`` or ``..``, or holds lone surrogates.
    """
    if text in {"", ".", ".."}:
        raise ValueError(f"{text!r} cannot be part of an address")
    escaped = quote(text, safe=_UNESCAPED)
    # A redundant escape distinguishes an id from a route of the same name.
    return f"%{ord(text[0]):x}{text[1:]}" if text in _ROUTES else escaped


def object_key(class_name: str, id_: str, group: str) -> str:
    return f"{class_name}/{id_}#{group}"


@dataclass(frozen=True, slots=True)
class ObjectResource:
    """An object, or some of its fields: sorted, without duplicates; empty: all."""

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
        requested = set(self.fields)
        fields_of = {group: requested.intersection(names) for group, names in groups.items()}
        if set().union(*fields_of.values()) != requested:
            return ()
        return tuple(group for group, names in fields_of.items() if names)

    def keys(self, group_map: GroupMap) -> tuple[str, ...]:
        """Return the keys that a filter tests it by; empty if the map does not name them all."""
        groups = self.groups(group_map)
        return tuple(object_key(self.class_name, self.id, group) for group in groups)


@dataclass(frozen=True, slots=True)
class QueryResource:
    """The result of a query in its canonical form."""

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
        """Results have no dated responses."""

    def keys(self, group_map: GroupMap) -> tuple[str, ...]:
        """Return the key that a filter tests it by; empty if the map does not have the class."""
        is_known = self.class_name in group_map
        return (key_of_query(self.class_name, self.query),) if is_known else ()


Readable: TypeAlias = ObjectResource | QueryResource


def _text(name: str, value: Any) -> str:
    """Encode a parameter: text unchanged, the elements of a list with their commas escaped."""
    if name == "fields" and not isinstance(value, str):
        value = sorted(set(value))
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return ",".join(
            _text("", element).replace("%", "%25").replace(",", "%2C") for element in value
        )
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
