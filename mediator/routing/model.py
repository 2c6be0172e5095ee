"""The routing model: all placements, immutable, replaced as one unit, with an epoch number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property

from mediator.base.errors import Conflict
from mediator.schema.batching import Direction, WaitBound, wait_bound
from mediator.schema.foreign_keys import ForeignKey
from mediator.schema.overrides import Overrides
from mediator.schema.tree import ClassSchema, Generated, Schema
from mediator.schema.values import Codec
from mediator.stores.port import Fragment

__all__ = ["EMPTY", "ClassRoute", "DatabaseRoute", "RoutingModel"]


@dataclass(frozen=True, eq=False)
class ClassRoute:
    """Where the fragments of a class are.

    Attributes:
        fragments: One for each system that holds its fields; the anchor group's comes first.
        copy: The fragment of the view: copies of whole objects, maintained by the materialiser;
            None if the database has no view.
        dropped: Stored names of fields that were dropped with their values, which no other field of
            the class ever gets.
        foreign_keys: The foreign keys of the class.
        referenced_by: The foreign keys of all classes that refer to it.
        partly_unique: Of a former schema, the fields of unique constraints that it has only in
            part.
        made_us: When the class was created or last placed anew, in microseconds since 1970:
            changes with a lower version are of a former class of the name. 0: unknown.
    """

    schema: ClassSchema
    schema_version: int
    fragments: tuple[Fragment, ...]
    copy: Fragment | None = None
    dropped: frozenset[str] = frozenset()
    foreign_keys: tuple[ForeignKey, ...] = ()
    referenced_by: tuple[ForeignKey, ...] = ()
    partly_unique: frozenset[str] = frozenset()
    made_us: int = 0

    @property
    def anchor(self) -> Fragment:
        """The fragment that decides whether an object exists."""
        return self.fragments[0]

    @cached_property
    def systems(self) -> frozenset[str]:
        """The systems that hold data of the class, including copies of its objects."""
        return frozenset(f.system for f in (*self.fragments, self.copy) if f is not None)

    @cached_property
    def view(self) -> ClassRoute | None:
        """The route of reads that the view can answer, if there is one."""
        copy = self.copy
        return None if copy is None else ClassRoute(self.schema, self.schema_version, (copy,))

    @cached_property
    def codec(self) -> Codec:
        return Codec(self.schema, self.partly_unique)

    @cached_property
    def import_codec(self) -> Codec:
        """The codec of exported objects: they keep the time of their last write."""
        fields = {
            name: replace(f, updated=False, default=Generated.NOW) if f.updated else f
            for name, f in self.schema.fields.items()
        }
        return Codec(replace(self.schema, fields=fields))

    @cached_property
    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """All cache groups with their fields, in the order of their names."""
        merged = {g: f for fragment in self.fragments for g, f in fragment.groups.items()}
        return dict(sorted(merged.items()))

    @cached_property
    def group_of(self) -> Mapping[str, str]:
        return {name: group for group, names in self.groups.items() for name in names}

    def require(self, names: Iterable[str]) -> None:
        """Refuse fields that the class no longer has: a request was read under a former schema.

        Raises:
            Conflict: There are such fields; the request had no effect.
        """
        missing = sorted(set(names) - self.fragment_of.keys())
        if missing:
            raise Conflict(
                f"{self.schema.name} no longer has the field {', '.join(missing)}: its schema was"
                " changed meanwhile."
            )

    @cached_property
    def public_names(self) -> Mapping[str, str]:
        """The name of each field by its stored name."""
        return {
            fragment.stored_names.get(name, name): name
            for fragment in self.fragments
            for name in fragment.fields
        }

    @cached_property
    def has_other_names(self) -> bool:
        """Whether changes can have stored names that are not field names."""
        return bool(self.dropped) or any(fragment.stored_names for fragment in self.fragments)

    @cached_property
    def fragment_of(self) -> Mapping[str, Fragment]:
        return {name: fragment for fragment in self.fragments for name in fragment.fields}


@dataclass(frozen=True, eq=False)
class DatabaseRoute:
    """A database: its schema and the routes of its classes. Advisory databases have no routes.

    Attributes:
        id: Unique among all databases that ever had the name. Empty without a catalogue: the name
            is the id.
        held: Classes that are being placed anew: the catalogue may have moved them already.
        owned_until: When the objects of classes without owners last had owners
            (`mediator.changes.former_owners`).
        overrides: Systems that operators have chosen, including ended ones.
        version: How often its schema was set, or an override.
        retired_before: The lowest version that clients can pin.
    """

    schema: Schema
    classes: Mapping[str, ClassRoute]
    id: str = ""
    held: frozenset[str] = frozenset()
    owned_until: Mapping[str, datetime] = field(default_factory=dict)
    overrides: Overrides = field(default_factory=dict)
    version: int = 0
    retired_before: int = 0

    def __post_init__(self) -> None:
        if not self.id:
            object.__setattr__(self, "id", self.schema.database)

    @cached_property
    def wait_bounds(self) -> Mapping[tuple[str, Direction], WaitBound]:
        """How long operations can wait for others, by class and direction; else they do not."""
        directions: tuple[Direction, ...] = ("read", "write")
        return {
            (name, direction): bound
            for name, class_ in self.schema.classes.items()
            for direction in directions
            if (bound := wait_bound(self.schema, class_, direction)) is not None
        }


@dataclass(frozen=True, eq=False)
class RoutingModel:
    epoch: int
    databases: Mapping[str, DatabaseRoute] = field(default_factory=dict)

    @cached_property
    def by_id(self) -> Mapping[str, DatabaseRoute]:
        return {route.id: route for route in self.databases.values()}


EMPTY = RoutingModel(epoch=0)
