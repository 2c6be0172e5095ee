"""The objects of a class, kept up to date by the changes of the feed.

Groups have versions, so a change that was already applied, or that was read with the object during
loading, has no effect. An object exists if its anchor has a group of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from mediator.base.errors import Invalid
from mediator.model.change import Change
from mediator.model.effects import Image
from mediator.model.operations import Outcome
from mediator.routing.model import ClassRoute
from mediator.schema.constraints import unconstrained
from mediator.schema.errors import InvalidValue
from mediator.schema.types import Value
from mediator.schema.values import decoder

__all__ = ["ObjectChange", "StoredObjects"]


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """An object before and after a change; None: it does not exist."""

    before: Image | None
    after: Image | None


@dataclass(slots=True)
class _Object:
    """An object with the versions of its groups; `image` is None if it does not exist."""

    versions: dict[str, int] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    image: Image | None = None


class StoredObjects:
    def __init__(self, route: ClassRoute) -> None:
        self.route = route
        self._fields = frozenset(route.schema.fields)
        self._decoders = {
            name: decoder(unconstrained(field_schema))
            for name, field_schema in route.schema.fields.items()
        }
        self._objects: dict[str, _Object] = {}
        self.bytes = 0
        """Approximate size of the values."""

    def __len__(self) -> int:
        return len(self._objects)

    def images(self) -> Iterator[Image]:
        """Return the existing objects."""
        return (stored.image for stored in self._objects.values() if stored.image is not None)

    def put(self, outcome: Outcome) -> None:
        """Store an object as the systems hold it."""
        versions = {name: v for name, v in outcome.versions.items() if v is not None}
        self._replace(outcome.id, _Object(versions, dict(outcome.values or {})))

    def apply(self, change: Change) -> ObjectChange | None:
        """Apply a change; return None if it has no effect.

        Raises:
            Invalid: A value is not allowed by the schema.
        """
        stored = self._objects.get(change.object_id) or _Object()
        names = self.route.groups.get(change.group)
        if names is None or change.version <= stored.versions.get(change.group, 0):
            return None
        versions, values = dict(stored.versions), dict(stored.values)
        touched = {*(change.before or ()), *(change.after or ())}
        # Only an update leaves untouched fields unchanged.
        for name in touched if change.kind == "update" else names:
            values.pop(name, None)
        if change.after is None:
            versions.pop(change.group, None)
        else:
            versions[change.group] = change.version
            values |= self._decode(change.after)
        after = self._replace(change.object_id, _Object(versions, values))
        return ObjectChange(stored.image, after)

    def _replace(self, id_: str, new: _Object) -> Image | None:
        former = self._objects.pop(id_, None)
        if former is not None:
            self.bytes -= sum(map(_size, former.values.values()))
        if new.versions:
            self._objects[id_] = new
            self.bytes += sum(map(_size, new.values.values()))
        if new.versions.keys() & self.route.anchor.groups.keys():
            new.image = Image(id_, self._fields, new.values)
        return new.image

    def _decode(self, values: Mapping[str, Any]) -> dict[str, Value]:
        raw_values = ((name, raw) for name, raw in values.items() if name in self._decoders)
        try:
            return {n: None if raw is None else self._decoders[n](raw) for n, raw in raw_values}
        except InvalidValue as error:
            detail = error.locations[0].detail
            raise Invalid(
                f"A change of {self.route.schema.name} cannot be read: {detail}."
            ) from None


def _size(value: Value) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, list | dict):
        return len(orjson.dumps(value, default=str))
    return 8
