"""The schema tree of one database: plain immutable data.

The dataclasses are the pydantic models of its document: see `mediator.schema.validation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field as Bounds

from mediator.schema.annotations import Annotations, at_level
from mediator.schema.limits import (
    BATCHING_MAX_WAIT_S,
    CACHE_COST_MAX,
    CACHE_COST_MIN,
    CACHE_MAX_TTL_S,
    CLASSES_PER_DATABASE,
    ENUM_MEMBERS,
    FIELDS_PER_CLASS,
    INDEX_FIELDS,
    INDEXED_PATHS,
    INDEXES,
    MAX_LENGTH,
    OBJECT_TTL_MAX_S,
    PATH_CHARACTERS,
    PATTERN_CHARACTERS,
    UNIQUE_CONSTRAINTS,
    UNIQUE_FIELDS,
)
from mediator.schema.types import ARRAYS, SCALARS, FieldType, Value
from mediator.schema.validation import (
    FieldName,
    Flag,
    Key,
    Name,
    Number,
    Omissible,
    Positive,
    Scalar,
    Stepwise,
    Unread,
    document,
    keyed,
)

__all__ = [
    "MAIN_GROUP",
    "MISSING",
    "SCRATCH_DATABASE",
    "Batching",
    "CachePolicy",
    "ClassSchema",
    "CompoundIndex",
    "DefaultSystem",
    "Field",
    "Generated",
    "MaterialisedView",
    "MissingType",
    "Mode",
    "OnDelete",
    "Schema",
]

MAIN_GROUP: Final = "main"
"""The default cache group of fields; it is the anchor group, which decides existence."""

SCRATCH_DATABASE: Final = "portolan_scratch"
"""The database of store probes and conformance tests; its changes are not relayed."""


class MissingType:
    """The type of `MISSING`: no value at all, unlike a stored null."""

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING: Final = MissingType()


class Mode(StrEnum):
    """How far placement can go (docs/papers/ppm.md, operating modes)."""

    MIXED = "mixed"
    MICROBATCHED = "microbatched"
    ENTITY = "entity"
    ADVISORY = "advisory"


@document
@dataclass(frozen=True, slots=True)
class MaterialisedView:
    """Where whole objects are materialised, and their maximum staleness in seconds."""

    system: Name | None = None
    staleness_s: Positive = 5.0


@document
@dataclass(frozen=True, slots=True)
class DefaultSystem:
    """The system of fields without annotations; None: the one that loses least in a crash."""

    system: Name | None = None


Visibility: TypeAlias = Literal["public", "private", "none"]
_Cost: TypeAlias = Annotated[Number, Bounds(ge=CACHE_COST_MIN, le=CACHE_COST_MAX)]


@document
@dataclass(frozen=True, slots=True)
class CachePolicy:
    """Who can cache objects of a class, for how long at most (seconds), and at what cost.

    Costs are in units of a read that reaches the systems: the cost of a write to a cached object,
    and of a read that returns a recently overwritten value.
    """

    visibility: Visibility = "none"
    max_ttl_s: Annotated[Positive, Bounds(le=CACHE_MAX_TTL_S)] = 600.0
    invalidation_cost: _Cost = 0.2
    stale_cost: _Cost = 1.0


@document
@dataclass(frozen=True, slots=True)
class Batching:
    """How long a single operation can wait to share a store call with others (seconds)."""

    max_wait_s: Annotated[Positive, Bounds(le=BATCHING_MAX_WAIT_S)]


_Length: TypeAlias = Annotated[int, Bounds(strict=True, ge=1, le=MAX_LENGTH)]
_Enum: TypeAlias = Annotated[
    tuple[Annotated[str, Bounds(strict=True)], ...], Bounds(min_length=1, max_length=ENUM_MEMBERS)
]
_Pattern: TypeAlias = Annotated[
    str, Bounds(strict=True, min_length=1, max_length=PATTERN_CHARACTERS)
]


_IndexedPaths: TypeAlias = Annotated[
    tuple[
        Annotated[str, Bounds(strict=True, min_length=1, max_length=PATH_CHARACTERS)],
        ...,
    ],
    Bounds(max_length=INDEXED_PATHS),
]


class Generated(StrEnum):
    """Generated defaults: `now` for timestamps, `uuid` for strings."""

    NOW = "now"
    UUID = "uuid"


class OnDelete(StrEnum):
    """The action on objects that refer to a deleted object."""

    IGNORE = "ignore"
    REFUSE = "refuse"
    CASCADE = "cascade"
    NULLIFY = "nullify"


@document
@dataclass(frozen=True, slots=True)
class Field:
    """One field of a class; `group` is None in the main group.

    `minimum` and `maximum` are of the field's type, as is `default` unless it is generated.
    `updated`: it is the time of the object's last write, which the service sets.
    `unique`: no two objects of the class have the same value.
    `on_delete`: of a reference that is a foreign key; None stands for `OnDelete.IGNORE`.
    `indexed_paths`: indexed paths within a document or a map: ``city``, or ``geo.lat``.
    """

    name: Key
    type: FieldType
    items: Omissible[FieldType] = None
    to: Omissible[Name] = None
    required: Flag = False
    max_length: Omissible[_Length] = None
    default: Unread[Value | MissingType | Generated] = field(default_factory=lambda: MISSING)
    index: Flag = False
    group: Omissible[Name] = None
    annotations: Annotated[Annotations, at_level("field")] = ()
    minimum: Scalar[Any] = None
    maximum: Scalar[Any] = None
    min_length: Omissible[_Length] = None
    enum: Omissible[_Enum] = None
    pattern: Omissible[_Pattern] = None
    system: Omissible[Name] = None
    updated: Flag = False
    unique: Flag = False
    on_delete: Omissible[OnDelete] = None
    indexed_paths: _IndexedPaths = ()

    @property
    def has_default(self) -> bool:
        """Whether an object that is written without it gets a value."""
        return self.updated or self.default is not MISSING

    @property
    def is_bounded(self) -> bool:
        """Whether it has a minimum or a maximum."""
        return self.minimum is not None or self.maximum is not None

    @property
    def has_ordered_index(self) -> bool:
        """Whether its values have an ordered index."""
        return self.index and self.type in SCALARS

    @property
    def has_element_index(self) -> bool:
        """Whether the elements of its values have an index, a multi-valued one."""
        return self.index and self.type in ARRAYS

    @property
    def indexed_keys(self) -> tuple[tuple[str, ...], ...]:
        """The indexed paths within its values, each as its keys."""
        return tuple([tuple(path.split(".")) for path in self.indexed_paths])


_UniqueFields: TypeAlias = Annotated[
    tuple[FieldName, ...], Bounds(min_length=1, max_length=UNIQUE_FIELDS)
]


@document
@dataclass(frozen=True, slots=True)
class CompoundIndex:
    """An index of several fields, ordered by the first, then by the second, and so on."""

    fields: Annotated[tuple[FieldName, ...], Bounds(min_length=2, max_length=INDEX_FIELDS)]


@document
@dataclass(frozen=True, slots=True)
class ClassSchema:
    """One class: its fields and its rules.

    `system` is the system required of its objects, as in a field and a schema.
    `owner_field` names the field with the owner of an object; None: objects have no owner.
    Each entry of `unique` lists fields whose combined values are unique.
    `indexes` are the compound ones.
    `batching` lets single operations share store calls (`mediator.schema.batching`).
    """

    name: Key
    fields: Annotated[Mapping[FieldName, Stepwise[Field]], keyed(FIELDS_PER_CLASS)] = field(
        default_factory=dict
    )
    annotations: Annotated[Annotations, at_level("class")] = ()
    cache: CachePolicy = field(default_factory=CachePolicy)
    require_if_match: Flag = False
    ttl_s: Annotated[Number, Bounds(ge=1, le=OBJECT_TTL_MAX_S)] | None = None
    owner_field: FieldName | None = None
    system: Name | None = None
    unique: Annotated[tuple[_UniqueFields, ...], Bounds(max_length=UNIQUE_CONSTRAINTS)] = ()
    indexes: Annotated[tuple[CompoundIndex, ...], Bounds(max_length=INDEXES)] = ()
    batching: Batching | None = None

    @property
    def unique_constraints(self) -> tuple[tuple[str, ...], ...]:
        """The fields of each unique constraint: of single fields first."""
        single = [(name,) for name, field in self.fields.items() if field.unique]
        return (*single, *self.unique)


@document
@dataclass(frozen=True, slots=True)
class Schema:
    """The schema of one database."""

    database: Key
    classes: Annotated[Mapping[Name, ClassSchema], keyed(CLASSES_PER_DATABASE)] = field(
        default_factory=dict
    )
    mode: Mode = Mode.MIXED
    materialised_view: MaterialisedView = field(default_factory=MaterialisedView)
    default: DefaultSystem = field(default_factory=DefaultSystem)
    annotations: Annotated[Annotations, at_level("database")] = ()
    system: Name | None = None
