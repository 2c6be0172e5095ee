"""The class that a request addresses, and the selected fields of its objects."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import orjson

from mediator.access.authorisation import Access
from mediator.base.errors import AdvisoryOnly, Invalid, Location, NotFound
from mediator.base.suggestions import did_you_mean
from mediator.data_plane.port import DataPlane
from mediator.operations.patch import FieldChanges, parse_update
from mediator.routing.former_schemas import FormerSchema
from mediator.routing.fragments import resource_groups
from mediator.routing.model import ClassRoute, DatabaseRoute, RoutingModel
from mediator.schema.ids import NAME

__all__ = ["ClassResource", "Directory", "FieldSelection"]

_MAX_CACHED = 256
_MAX_CACHED_BYTES: Final = 256
"""Size of the largest cached update, in bytes."""
_SCALAR_TYPES: Final = frozenset({int, float, str, bool, Decimal, type(None)})


@dataclass(frozen=True, slots=True)
class FieldSelection:
    """The part of an object that is the resource of a request.

    Attributes:
        fields: Sorted names, without duplicates; None: the whole object.
        groups: The cache groups of these fields, in order; the ETag consists of their versions.
        schema_version: Version of the class's schema.
        canonical: Whether the request named the fields in order, without duplicates, and by their
            current names. Only such answers are cached.
        pinned: The version of the database's schema that the request is pinned to; 0: none.
    """

    fields: tuple[str, ...] | None
    groups: tuple[str, ...]
    schema_version: int
    canonical: bool = True
    pinned: int = 0


class ClassResource:
    """A class with its route in one routing model, and a cache of parsed requests."""

    __slots__ = (
        "_selections",
        "_updates",
        "codec",
        "database",
        "full_selection",
        "name",
        "only_ids",
        "route",
        "schema",
    )

    def __init__(self, database: str, name: str, route: ClassRoute, pinned: int = 0) -> None:
        self.database = database
        self.name = name
        self.route = route
        self.schema = route.schema
        self.codec = route.codec
        groups = resource_groups(route, None)
        version, canonical = route.schema_version, not pinned
        self.full_selection = FieldSelection(None, groups, version, canonical, pinned)
        self.only_ids = FieldSelection((), (), 0, canonical, pinned)
        self._selections: dict[str, FieldSelection] = {}
        self._updates: dict[bytes, FieldChanges] = {}

    def select(self, fields: str | None) -> FieldSelection:
        if fields is None:
            return self.full_selection
        return self._selections.get(fields) or self._select(fields)

    def _select(self, fields: str) -> FieldSelection:
        names = fields.split(",")
        known = self.schema.fields
        unknown = [name for name in names if name not in known]
        if unknown:
            locations = [
                Location(
                    "fields", f"{name!r} is no field of {self.name}{did_you_mean(name, known)}"
                )
                for name in unknown[:100]
            ]
            raise Invalid("A field is not known.", locations=locations)
        selected = tuple(sorted(set(names)))
        groups = resource_groups(self.route, selected)
        canonical = self.full_selection.canonical and selected == tuple(names)
        version, pinned = self.full_selection.schema_version, self.full_selection.pinned
        selection = FieldSelection(selected, groups, version, canonical, pinned)
        if not canonical:
            return selection
        if len(self._selections) >= _MAX_CACHED:
            self._selections.clear()
        return self._selections.setdefault(fields, selection)

    def parse_update(self, body: Any, pointer: str) -> FieldChanges:
        """Parse an operator patch, or return it from the cache: many, such as counters, recur."""
        encoded = orjson.dumps(body)
        changes = self._updates.get(encoded)
        if changes is None:
            changes = parse_update(self.schema, self.codec, body, pointer)
            if len(encoded) <= _MAX_CACHED_BYTES and _is_constant(changes):
                if len(self._updates) >= _MAX_CACHED:
                    self._updates.clear()
                self._updates[encoded] = changes
        return changes


def _is_constant(changes: FieldChanges) -> bool:
    """Whether the changes hold no mutable value, so that requests can share them."""
    return not changes.values and all(
        type(call.argument) in _SCALAR_TYPES for call in changes.operators
    )


@dataclass(eq=False)
class Directory:
    """Finds classes and databases; a new routing model empties its cache."""

    _plane: DataPlane
    _model: RoutingModel | None = field(default=None, init=False)
    _resources: dict[tuple[str, str], ClassResource] = field(default_factory=dict, init=False)

    def lookup(self, database: str, name: str) -> ClassResource | None:
        """Return a class of the current routing model; None: a newer model may have it."""
        model = self._plane.model
        if model is not self._model:
            self._model = model
            self._resources = {}
        resource = self._resources.get((database, name))
        if resource is None:
            database_route = model.databases.get(database)
            route = None if database_route is None else database_route.classes.get(name)
            if route is not None:
                resource = ClassResource(database, name, route)
                self._resources[database, name] = resource
        return resource

    async def find(
        self, database: str, name: str, access: Access, pinned: FormerSchema | None = None
    ) -> ClassResource:
        """Find a class, also in a newer routing model; raise `NotFound` if there is none.

        For a `pinned` request, return the class with the names of that version.
        """
        resource = await self._find(database, name, access)
        if pinned is None:
            return resource
        return ClassResource(database, name, pinned.route_of(name), pinned.version)

    async def _find(self, database: str, name: str, access: Access) -> ClassResource:
        resource = self.lookup(database, name)
        if resource is not None:
            return resource
        if not (NAME.fullmatch(database) and NAME.fullmatch(name)):
            hint = self.did_you_mean(database, name, access)
            raise NotFound(f"The address names no class{hint or '.'}")
        try:
            route = await self._plane.route(database, name)
        except NotFound as error:
            hint = self.did_you_mean(database, name, access)
            raise NotFound(error.detail.removesuffix(".") + (hint or ".")) from None
        return self.lookup(database, name) or ClassResource(database, name, route)

    def did_you_mean(self, database: str, name: str, access: Access) -> str:
        """Return the end of a message that suggests a class which the sender may read."""
        route = self._plane.model.databases.get(database)
        classes = () if route is None else route.classes
        return did_you_mean(name, classes, lambda class_: access.may_read(database, class_))

    async def refresh_if_missing(self, database: str, *names: str) -> None:
        """Look for a newer routing model, once, if the current one lacks some of these classes."""
        route = self._plane.model.databases.get(database)
        missing = [name for name in names if route is None or name not in route.classes]
        if missing:
            with suppress(NotFound, AdvisoryOnly):
                await self._plane.route(database, missing[0])

    def id_of(self, database: str) -> str | None:
        """Return the database's id, unlike that of earlier ones of its name; None: unknown."""
        route = self._plane.model.databases.get(database)
        return None if route is None else route.id

    async def database(self, name: str) -> DatabaseRoute:
        if name not in self._plane.model.databases:
            with suppress(NotFound):  # checked below, after the look for a newer model
                await self._plane.route(name, "")
        route = self._plane.model.databases.get(name)
        if route is None:
            raise NotFound("There is no such database.")
        return route
