"""Layouts: where each cache group of each class lives, as the catalogue keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mediator.catalogue.schemas import StoredDatabase
from mediator.placement.decide import Decision, GroupPlacement, build_routes
from mediator.placement.routing import DatabaseRoute
from mediator.schema.parse import parse_schema
from mediator.stores.port import Fragment

__all__ = ["copies_of", "fragments_of", "layout_of", "primary_of", "route_of", "same_place"]


def layout_of(
    decision: Decision, versions: Mapping[str, int], primary: str | None
) -> dict[str, Any]:
    """Return the layout of a decision, with the schema version of each class, and the primary."""
    return {
        class_name: {
            "version": versions[class_name],
            "primary": primary,
            "groups": {
                group: {"system": placed.system, "fields": list(placed.fields)}
                for group, placed in groups.items()
            },
            # JSONB orders keys as it likes; the anchor group comes first.
            "order": list(groups),
        }
        for class_name, groups in decision.groups.items()
    }


def route_of(stored: StoredDatabase) -> DatabaseRoute:
    """Build the routes of a stored database."""
    schema = parse_schema(stored.name, stored.document)
    groups = {
        class_name: {group: _placed(layout["groups"][group]) for group in layout["order"]}
        for class_name, layout in stored.layout.items()
    }
    versions = {class_name: layout["version"] for class_name, layout in stored.layout.items()}
    return build_routes(schema, groups, versions, primary_of(stored))


def primary_of(stored: StoredDatabase | None) -> str | None:
    """Return the system that a stored database has its primary on."""
    layouts = stored.layout.values() if stored else ()
    return next((layout["primary"] for layout in layouts), None)


def fragments_of(route: DatabaseRoute | None) -> list[Fragment]:
    """Return all fragments of a database."""
    return [f for r in route.classes.values() for f in r.fragments] if route else []


def copies_of(route: DatabaseRoute | None) -> list[Fragment]:
    """Return what the primary holds of a database."""
    copies = [r.copy for r in route.classes.values()] if route else []
    return [copy for copy in copies if copy is not None]


def same_place(route: DatabaseRoute | None, fragment: Fragment) -> Fragment | None:
    """Find the fragment of the same class on the same system."""
    for other in fragments_of(route):
        if (other.class_name, other.system) == (fragment.class_name, fragment.system):
            return other
    return None


def _placed(form: Mapping[str, Any]) -> GroupPlacement:
    return GroupPlacement(form["system"], tuple(form["fields"]))
