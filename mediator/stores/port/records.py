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
    """What one system holds of one class. Identity is object identity: one per routing model.

    Attributes:
        database: Name of the database: for people, caches and grants.
        fields: The fields placed here, by name.
        groups: The cache groups placed here: group name to the names of its fields. May be a group
            without fields: the anchor group of a class whose fields are all in other stores.
        ttl_s: Time to live of objects, from their creation; None: they do not expire.
        joint: Whether the class has further fragments. Then records read from it have the joint
            writes that concern several of them (`Record.intent`, `Record.joint`).
        anchor_system: Name of the system whose clock creation versions go by: the one that decides
            whether an object exists; empty: `system`.
        database_id: Id of the database, which no later one of its name has: what a write leaves for
            the feed names it. Empty, for what no catalogue keeps: the name is the id.
        stored_as: What stores name records of the class by, together with the database: another one
            whenever the class is made or placed anew, so that data of the old one is never
            read, and a late drop does no harm. Empty: the name of the class.
        unique: The fields of each unique constraint that is decided here. Empty for copies.
        indexes: The fields of each compound index, all of which are here.
        stored_names: What stores name fields by, where that is not their name: a field that is
            renamed keeps its stored name for good (`mediator.stores.renamed`).
        ordered_indexes: The fields of each index of values in their order: of single fields, then
            the compound ones.
        leading: The first fields of these.
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
        single = [(name,) for name, each in self.fields.items() if each.has_ordered_index]
        indexes = (*single, *self.indexes)
        # Planning needs them for every query, and a class may have hundreds of fields.
        object.__setattr__(self, "ordered_indexes", indexes)
        object.__setattr__(self, "leading", frozenset(names[0] for names in indexes))


@immutable
class Record:
    """What a store holds of one object.

    Attributes:
        creation_version: Version of the object's creation; equal in all fragments of one
            generation.
        versions: Version of each group here; strictly increasing, over deletes too.
        values: The fields that were read and are not missing.
        intent: The write intent on the record; empty if none, or if its fragment is not
            `joint`.
        joint: The last write over all fragments of the object that has happened (the intent under
            which it did): the same in all of them, but while one is being applied. Empty as for
            `intent`.
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
