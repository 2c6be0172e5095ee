"""Fragments, records and reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mediator.base.immutable import immutable
from mediator.schema.tree import Field
from mediator.schema.types import Values

__all__ = ["Fragment", "Read", "Record"]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Fragment:
    """The fields of a class on one system. Identity is object identity: one per routing model.

    Attributes:
        database: Name of the database, for people, caches and grants.
        fields: The fields placed here, by name.
        groups: The cache groups placed here: group name to the names of its fields. A group can be
            empty: the anchor group of a class whose fields are all in other stores.
        ttl_s: Time to live of objects, from their creation; None: they do not expire.
        joint: Whether the class has other fragments. Its records then carry the joint writes over
            several fragments (`Record.intent`, `Record.joint`).
        anchor_system: The system that decides whether an object exists, and whose clock gives
            creation versions; empty: `system`.
        database_id: Id of the database, never reused by a later one of the same name; outbox
            entries carry it. Empty, for databases outside the catalogue: the name is the id.
        stored_as: The name under which stores keep records of the class in the database. It changes
            whenever the class is created or placed again, so that old data is never read, and a
            late drop does no harm. Empty: the name of the class.
        unique: The fields of each unique constraint that is enforced here. Empty for copies.
        indexes: The fields of each compound index, all of which are here.
        stored_names: Stored names that differ from the field's name: a renamed field keeps its
            stored name for good (`mediator.stores.renamed`).
        ordered_indexes: The fields of each ordered index: single fields first, then compound
            indexes.
        leading: The first field of each ordered index.
    """

    system: str
    database: str
    class_name: str
    fields: Mapping[str, Field]
    groups: Mapping[str, tuple[str, ...]]
    schema_version: int = 1
    ttl_s: float | None = None
    joint: bool = False
    anchor_system: str = ""
    database_id: str = ""
    stored_as: str = ""
    unique: tuple[tuple[str, ...], ...] = ()
    indexes: tuple[tuple[str, ...], ...] = ()
    stored_names: Mapping[str, str] = field(default_factory=dict)
    ordered_indexes: tuple[tuple[str, ...], ...] = field(init=False)
    leading: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "database_id", self.database_id or self.database)
        object.__setattr__(self, "stored_as", self.stored_as or self.class_name)
        single = [(name,) for name, field_ in self.fields.items() if field_.has_ordered_index]
        indexes = (*single, *self.indexes)
        # Planning needs them for every query, and a class can have hundreds of fields.
        object.__setattr__(self, "ordered_indexes", indexes)
        object.__setattr__(self, "leading", frozenset(names[0] for names in indexes))


@immutable
class Record:
    """The fields and versions that a store holds for one object.

    Attributes:
        creation_version: Version of the object's creation; equal in all fragments of one
            generation.
        versions: Version of each group here; strictly increasing, also across deletes.
        values: The fields that were read and are not missing.
        intent: The write intent on the record; empty if none, or if its fragment is not
            `joint`.
        joint: The intent of the last joint write that was applied: the same in all fragments of
            the object, except while a joint write is being applied. Empty as for `intent`.
    """

    id: str
    creation_version: int
    versions: Mapping[str, int]
    values: Values
    intent: str = ""
    joint: str = ""


@immutable
class Read:
    """Read one record: all its fields (`fields` None) or some of them."""

    fragment: Fragment
    id: str
    fields: tuple[str, ...] | None = None
