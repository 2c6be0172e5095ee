"""Databases as the catalogue stores them, and moments in the history of their schemas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any

__all__ = ["CatalogueSnapshot", "Difference", "Hold", "Moment", "StoredDatabase", "new_id"]


def new_id(name: str) -> str:
    """Return a unique id for a database of this name, readable for operators."""
    return f"{name}_{token_hex(6)}"


@dataclass(frozen=True, slots=True)
class Hold:
    """Classes to which no replica writes while one places them elsewhere (docs/replicas.md)."""

    id: str
    classes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredDatabase:
    """One database as the catalogue stores it.

    Attributes:
        id: Differs from the ids of earlier and later databases of the name; see `new_id`.
        version: How often its schema was set, or an override.
        layout: For each class its version, and for each cache group the system and the fields.
        hold: The classes that take no writes at present.
        owned_until: When the objects of classes that have no owners now last had owners; only
            `CatalogueSchemas.put` sets it (`mediator.changes.former_owners`).
        overrides: For each overridden node the system, the reason, and the end.
        retired_before: The lowest version that clients can pin; only `CatalogueSchemas` sets it, as
            `owned_until`.
    """

    name: str
    id: str
    version: int
    document: dict[str, Any]
    layout: dict[str, Any]
    hold: Hold | None = None
    owned_until: Mapping[str, str] = field(default_factory=dict)
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    retired_before: int = 0


@dataclass(frozen=True, slots=True)
class Moment:
    """The number of schema changes so far, and the id of the last; None if it is not noted."""

    epoch: int
    change: str | None = None


@dataclass(frozen=True, slots=True)
class CatalogueSnapshot:
    moment: Moment
    databases: Mapping[str, StoredDatabase]


@dataclass(frozen=True, slots=True)
class Difference:
    """The databases that have changed up to a moment, as they are then; None: dropped."""

    moment: Moment
    changed: Mapping[str, StoredDatabase | None]
