"""Databases as the catalogue keeps them, and moments in the history of their schemas."""

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
    """Classes to which no replica writes, while one places them anew (docs/replicas.md)."""

    id: str
    classes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredDatabase:
    """One database as the catalogue keeps it.

    Attributes:
        id: Unlike those of earlier and later databases of the name; see `new_id`.
        version: How often its schema was set, or an override.
        layout: For each class its version, and for each cache group the system and the fields.
        hold: Which classes take no writes at present.
        owned_until: Until when objects of classes had owners that have none any more; kept by
            `CatalogueSchemas.put` alone (`mediator.changes.former_owners`).
        overrides: For each overridden node the system, the reason, and until when.
        retired_before: The version before which clients may pin none; kept by `CatalogueSchemas`
            alone, as `owned_until` is.
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
    """How many changes of schemas there were, and the id of the last; None if it is not noted."""

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
