"""Checks of a schema change before any effect: names, constraints, indexes, the view."""

from __future__ import annotations

from mediator.base.errors import (
    Conflict,
    Invalid,
    Location,
    SchemaInvalid,
)
from mediator.base.suggestions import did_you_mean
from mediator.control.schema_plan import SchemaPlan
from mediator.materialisation.service import ViewService
from mediator.routing.model import DatabaseRoute
from mediator.schema.limits import MAX_ERRORS
from mediator.schema.tightening import (
    unique_constraints,
)
from mediator.schema.tree import Mode, Schema
from mediator.stores.port import Mirror
from mediator.stores.systems import Systems

__all__ = [
    "check_dropped",
    "check_indexes",
    "check_unique",
    "check_view",
    "notes_on_view",
    "without_copies",
]


def check_dropped(names: frozenset[str], schema: Schema, present: DatabaseRoute | None) -> None:
    """Raise `Invalid` if nodes to drop do not exist, or stay in the schema."""
    nodes, remaining = _nodes(present.schema if present else None), _nodes(schema)
    reasons = [f"{name} is in the new schema" for name in sorted(names & remaining)]
    for name in sorted(names - nodes):
        kind = "field" if "." in name else "class"
        candidates = (node for node in nodes if ("." in node) is ("." in name))
        reasons.append(f"there is no {kind} {name}{did_you_mean(name, candidates)}")
    if reasons:
        locations = [Location("drop", reason) for reason in reasons[:MAX_ERRORS]]
        raise Invalid("Classes or fields cannot be dropped.", locations=locations)


def _nodes(schema: Schema | None) -> set[str]:
    classes = schema.classes if schema else {}
    return {*classes, *(f"{name}.{field}" for name, c in classes.items() for field in c.fields)}


def check_unique(plan: SchemaPlan) -> None:
    """Refuse unique constraints that no system decides, or that cannot be built over objects.

    Raises:
        Conflict: Fields of one are on several systems, or are renamed by the same change.
    """
    added = plan.added_unique
    locations = [
        Location(f"{constraint.location}/{constraint.constraint}", reason)
        for name, class_ in plan.schema.classes.items()
        for constraint in unique_constraints(class_, class_.unique_constraints).values()
        if (
            reason := _obstacle(
                plan, name, constraint.unique, constraint.unique in added.get(name, ())
            )
        )
    ]
    if locations:
        detail = "Unique constraints cannot be put in force."
        raise Conflict(detail, locations=locations[:MAX_ERRORS])


def _obstacle(plan: SchemaPlan, class_name: str, names: tuple[str, ...], is_added: bool) -> str:
    """Return why a unique constraint cannot be in force; empty: no reason."""
    if is_added and class_name in plan.options.rename:
        return "needs a separate change, as this one renames fields of the class"
    for route in (plan.route, plan.present if is_added else None):
        placed = route.classes.get(class_name) if route is not None else None
        if placed is not None and not any(f.fields.keys() >= set(names) for f in placed.fragments):
            return "is of fields whose values are on several systems"
    return ""


def check_indexes(route: DatabaseRoute) -> None:
    """Raise `Conflict` if fields of a compound index are on several systems.

    The fields of a class without objects are placed together; with objects, fields stay in place.
    """
    locations = [
        Location(f"/classes/{name}/indexes/{i}/fields", f"are on {' and '.join(systems)}")
        for name, class_ in route.classes.items()
        for i, index in enumerate(class_.schema.indexes)
        if len(systems := {class_.fragment_of[field].system: None for field in index.fields}) > 1
    ]
    if locations:
        detail = "A compound index is of fields that one system holds; these are on several."
        raise Conflict(detail, locations=locations)


def without_copies(systems: Systems) -> list[str]:
    return [guarded.name for guarded in systems if not isinstance(guarded.store, Mirror)]


def check_view(schema: Schema, view: str | None, systems: Systems) -> None:
    if schema.mode is not Mode.MICROBATCHED:
        return
    pointer = "/materialised_view"
    mistake = "no system that takes copies is proven for scans, sorting and range queries"
    if view is not None:
        if view not in without_copies(systems):
            return
        pointer, mistake = f"{pointer}/system", f"{view} cannot hold copies of objects"
    locations = [Location(pointer, mistake)]
    raise SchemaInvalid(f"There can be no materialised view: {mistake}.", locations=locations)


def notes_on_view(schema: Schema, views: ViewService) -> list[str]:
    if schema.mode is not Mode.MICROBATCHED or views.is_active:
        return []
    return ["Without a coordination Redis nothing is copied into the view: it answers no reads."]
