"""Overrides of a database: changed, checked, and in the form that the catalogue stores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from mediator.base.errors import Conflict, Invalid, Location, NotFound
from mediator.catalogue.stored_databases import StoredDatabase
from mediator.control.layout import overrides_of
from mediator.placement.required import unknown_system
from mediator.schema.overrides import Override, Overrides, in_force
from mediator.schema.tree import Schema

__all__ = ["OVERRIDES_PER_DATABASE", "OVERRIDE_MAX_DAYS", "changed_overrides", "documents"]

OVERRIDES_PER_DATABASE: Final = 100

OVERRIDE_MAX_DAYS: Final = 184
"""Half a year: anything more permanent belongs in the schema."""


def changed_overrides(
    stored: StoredDatabase | None,
    schema: Schema,
    changes: Mapping[str, Override | None],
    systems: Iterable[str],
    now: float,
) -> dict[str, Override]:
    """Return the overrides of a database after some were set, or removed (None).

    Overrides that have ended, or whose node no longer exists, are left out.

    Raises:
        NotFound: A node, or an override to remove, does not exist.
        Invalid: There is no such system, or the time is past or too far away.
        Conflict: There would be more than `OVERRIDES_PER_DATABASE`.
    """
    overrides = in_force(overrides_of(stored), now)
    for node, override in changes.items():
        if not _is_node(schema, node):
            raise NotFound(f"There is no node {node}.")
        if override is not None:
            _check(override, sorted(systems), now)
            overrides[node] = override
        elif overrides.pop(node, None) is None:
            raise NotFound(f"There is no override of {node}.")
    if changes and len(overrides) > OVERRIDES_PER_DATABASE:
        raise Conflict(f"A database has at most {OVERRIDES_PER_DATABASE} overrides.")
    return {node: override for node, override in overrides.items() if _is_node(schema, node)}


def documents(overrides: Overrides) -> dict[str, dict[str, Any]]:
    """Encode overrides as JSON, for the catalogue and responses."""
    return {
        node: {
            "system": override.system,
            "reason": override.reason,
            "until": override.until.astimezone(UTC).isoformat(),
        }
        for node, override in sorted(overrides.items())
    }


def _is_node(schema: Schema, node: str) -> bool:
    class_name, _, field = node.partition(".")
    class_ = schema.classes.get(class_name)
    return class_ is not None and (not field or field in class_.fields)


def _check(override: Override, systems: list[str], now: float) -> None:
    at = datetime.fromtimestamp(now, UTC)
    locations = []
    if override.system not in systems:
        locations.append(Location("/system", unknown_system(override.system, systems)))
    if not at < override.until <= at + timedelta(days=OVERRIDE_MAX_DAYS):
        detail = f"must be in the future, at most {OVERRIDE_MAX_DAYS} days from now"
        locations.append(Location("/until", detail))
    if locations:
        raise Invalid("The override is malformed.", locations=locations)
