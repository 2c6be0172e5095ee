"""The schema tree of one database, parsed and validated: plain immutable data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal, TypeAlias

from mediator.schema.annotations import Annotation
from mediator.schema.types import FieldType, Value

__all__ = [
    "MAIN_GROUP",
    "MISSING",
    "SCRATCH_DATABASE",
    "CachePolicy",
    "ClassSchema",
    "DefaultSystem",
    "Field",
    "MaterialisedView",
    "MissingType",
    "Mode",
    "Schema",
]

MAIN_GROUP: Final = "main"
"""The cache group of fields that name none; it is the anchor group: it decides existence."""

SCRATCH_DATABASE: Final = "portolan_scratch"
"""The database of store probes and conformance tests; its changes are not relayed."""


class MissingType:
    """The type of `MISSING`: no value at all, as against a stored null."""

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING: Final = MissingType()


class Mode(StrEnum):
    """How far placement may go (docs/papers/ppm.md, operating modes)."""

    MIXED = "mixed"
    MICROBATCHED = "microbatched"
    ENTITY = "entity"
    ADVISORY = "advisory"


@dataclass(frozen=True, slots=True)
class MaterialisedView:
    """Where whole objects are materialised, and how late at most (seconds)."""

    system: str | None = None
    staleness_s: float = 5.0


@dataclass(frozen=True, slots=True)
class DefaultSystem:
    """The system of fields without annotations; None: the one that loses least in a crash."""

    system: str | None = None


Visibility: TypeAlias = Literal["public", "private", "none"]


@dataclass(frozen=True, slots=True)
class CachePolicy:
    """Who may cache objects of a class, for how long at most (seconds), and what it may cost.

    Costs are in units of a read that has to reach the systems: of a write to an object that caches
    hold, and of a read that is answered with what was overwritten lately.
    """

    visibility: Visibility = "none"
    max_ttl_s: float = 600.0
    invalidation_cost: float = 0.2
    stale_cost: float = 1.0


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a class."""

    name: str
    type: FieldType
    items: FieldType | None = None
    to: str | None = None
    required: bool = False
    max_length: int | None = None
    default: Value | MissingType = MISSING
    index: bool = False
    group: str | None = None
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class ClassSchema:
    """One class: its fields and its rules.

    `owner_field` names the field that says whose an object is; None: objects are nobody's.
    """

    name: str
    fields: Mapping[str, Field]
    annotations: tuple[Annotation, ...] = ()
    cache: CachePolicy = field(default_factory=CachePolicy)
    require_if_match: bool = False
    ttl_s: float | None = None
    owner_field: str | None = None


@dataclass(frozen=True, slots=True)
class Schema:
    """The schema of one database."""

    database: str
    classes: Mapping[str, ClassSchema]
    mode: Mode = Mode.MIXED
    materialised_view: MaterialisedView = field(default_factory=MaterialisedView)
    default: DefaultSystem = field(default_factory=DefaultSystem)
    annotations: tuple[Annotation, ...] = ()
