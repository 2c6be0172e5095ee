"""Layouts: where each cache group of each class is placed, as the catalogue stores it.

Stores name records of a class by its *generation*. A class gets one when it is created, and another
when it is placed elsewhere and leaves a system. If it holds objects it keeps its generation, and
leaves a system only with dropped fields: the number of its departures follows the generation there.
So a late write to a former location, or the removal of that location, does not affect the present
class. The layout also records when the class got its generation, by the clock of the replica that
planned it: changes of a former class of the name are older.

Likewise they name fields by *stored names*, for as long as the class keeps its generation. The
stored name of a field is its first name, unless another field has taken it: one that was renamed
since, or one that was dropped with its values. A former name that no field has now is *freed*: a
replica that is behind can still take it for the former field.

Unique constraints that are being built (`mediator.control.unique_builds`) are part of a layout, not
of the schema: all writes obey them, but they do not hold yet.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count
from secrets import token_hex
from typing import Any, Final

from mediator.base.offload import throttled
from mediator.catalogue.stored_databases import StoredDatabase
from mediator.placement.decide import Decision, GroupPlacement, build_routes
from mediator.routing.model import ClassRoute, DatabaseRoute
from mediator.schema.overrides import Override
from mediator.schema.parse import parse_schema
from mediator.schema.tree import Schema
from mediator.stores.port import Fragment
from mediator.stores.stored_names import stored_fragment

__all__ = [
    "UniqueBuild",
    "builds_of",
    "copies_of",
    "fragments_of",
    "indexes_of",
    "is_read_by",
    "layout_of",
    "location_of",
    "notes_on_builds",
    "overrides_of",
    "route_of",
    "same_location",
    "view_system_of",
    "with_catalogue_state",
]

_NAME_LENGTH: Final = 63
"""Maximum characters of a stored name: the limit of PostgreSQL's column names."""


@dataclass(frozen=True, slots=True)
class UniqueBuild:
    """Unique constraints of one class that are being built over its objects.

    Attributes:
        id: Unique to this build.
        unique: The fields of each.
        until: When it is abandoned, unless somebody continues it.
        after: The last id up to which the objects claim their values; None: none does yet.
    """

    id: str
    unique: tuple[tuple[str, ...], ...]
    until: datetime
    after: str | None = None

    @classmethod
    def of(cls, layout: Mapping[str, Any] | None) -> UniqueBuild | None:
        """Return the build in progress of a class, by its layout."""
        build = layout.get("building") if layout else None
        if not build:
            return None
        unique = tuple(map(tuple, build["unique"]))
        return cls(build["id"], unique, datetime.fromisoformat(build["until"]), build["after"])

    def to_json(self) -> dict[str, Any]:
        unique = list(map(list, self.unique))
        return {
            "id": self.id,
            "unique": unique,
            "until": self.until.isoformat(),
            "after": self.after,
        }


def indexes_of(fragment: Fragment) -> dict[tuple[str, ...], str]:
    """Return the indexes of a fragment by their names in its store, with their schema names."""
    names = map(",".join, _indexes(fragment))
    return dict(zip(_indexes(stored_fragment(fragment)), names, strict=True))


def _indexes(fragment: Fragment) -> list[tuple[str, ...]]:
    fields = fragment.fields.items()
    elements = [(name,) for name, field in fields if field.has_element_index]
    paths = [(f"{name}.{path}",) for name, field in fields for path in field.indexed_paths]
    return [*fragment.ordered_indexes, *elements, *paths]


def builds_of(stored: StoredDatabase) -> dict[str, UniqueBuild]:
    """Return the builds in progress, by class."""
    builds = {name: UniqueBuild.of(layout) for name, layout in stored.layout.items()}
    return {name: build for name, build in builds.items() if build is not None}


def notes_on_builds(stored: StoredDatabase) -> list[str]:
    return [
        f"{', '.join(names)} of {class_name} is being made unique: writes keep it so already."
        for class_name, build in builds_of(stored).items()
        for names in build.unique
    ]


def layout_of(
    decision: Decision,
    versions: Mapping[str, int],
    view: str | None,
    present: Mapping[str, Any],
    now: float,
    holding: Collection[str] = (),
    retyped: Mapping[str, Collection[str]] | None = None,
) -> dict[str, Any]:
    """Return the layout of a decision, with the schema version of each class.

    `view` is the system of the copies. Classes keep the generations of the layout `present`, and
    the stored names of their objects, if they hold any; new ones are created `now` (seconds since
    1970). `retyped` fields (by class; it holds no objects) are new fields under the same names.
    """
    return {
        class_name: {
            "version": versions[class_name],
            **_storage_of(
                present.get(class_name),
                groups,
                (retyped or {}).get(class_name, ()),
                now,
                holding=class_name in holding,
            ),
            "view": view,
            "groups": {
                group: {"system": placed.system, "fields": list(placed.fields)}
                for group, placed in throttled(groups.items())
            },
            # JSONB does not preserve key order; the anchor group comes first.
            "order": list(groups),
        }
        for class_name, groups in decision.groups.items()
    }


def route_of(stored: StoredDatabase) -> DatabaseRoute:
    schema = _with_builds(parse_schema(stored.name, stored.document), stored.layout)
    groups = {
        class_name: {
            group: _group_placement(layout["groups"][group]) for group in throttled(layout["order"])
        }
        for class_name, layout in stored.layout.items()
    }
    versions = {class_name: layout["version"] for class_name, layout in stored.layout.items()}
    routes = build_routes(schema, groups, versions, view_system_of(stored))
    classes = {name: _with_identity(route, stored) for name, route in routes.classes.items()}
    overrides, version = overrides_of(stored), stored.version
    route = DatabaseRoute(schema, classes, stored.id, overrides=overrides, version=version)
    return with_catalogue_state(route, stored)


def _with_builds(schema: Schema, layout: Mapping[str, Any]) -> Schema:
    """Add the unique constraints that are being built to a schema."""
    classes = {
        name: replace(class_, unique=(*class_.unique, *build.unique))
        for name, class_ in schema.classes.items()
        if (build := UniqueBuild.of(layout.get(name)))
    }
    return replace(schema, classes={**schema.classes, **classes}) if classes else schema


def with_catalogue_state(route: DatabaseRoute, stored: StoredDatabase) -> DatabaseRoute:
    """Return the routes of a database with state of the catalogue; fragments stay the same.

    This state is the former owners of its classes, and the retired versions.
    """
    times = {name: datetime.fromisoformat(at) for name, at in stored.owned_until.items()}
    return replace(route, owned_until=times, retired_before=stored.retired_before)


def overrides_of(stored: StoredDatabase | None) -> dict[str, Override]:
    """Return all overrides in the catalogue, including ended ones."""
    overrides = stored.overrides if stored else {}
    return {
        node: Override(row["system"], row["reason"], datetime.fromisoformat(row["until"]))
        for node, row in overrides.items()
    }


def view_system_of(stored: StoredDatabase | None) -> str | None:
    layouts = stored.layout.values() if stored else ()
    return next((layout["view"] for layout in layouts), None)


def fragments_of(route: DatabaseRoute | None) -> list[Fragment]:
    return [f for r in route.classes.values() for f in r.fragments] if route else []


def copies_of(route: DatabaseRoute | None) -> list[Fragment]:
    copies = [r.copy for r in route.classes.values()] if route else []
    return [copy for copy in copies if copy is not None]


def same_location(route: DatabaseRoute | None, fragment: Fragment) -> Fragment | None:
    """Find the fragment of the same generation of the same class on the same system."""
    for other in fragments_of(route):
        if location_of(other) == location_of(fragment):
            return other
    return None


def is_read_by(fragment: Fragment, other: Fragment | None) -> bool:
    """Whether another fragment reads all writes to a fragment, with all its claims."""
    if other is None:
        return False
    fragment, other = stored_fragment(fragment), stored_fragment(other)
    types = {name: (field.type, field.items) for name, field in other.fields.items()}
    return all(
        types.get(name) == (field.type, field.items) for name, field in fragment.fields.items()
    ) and (
        all(set(names) <= set(other.groups.get(g, ())) for g, names in fragment.groups.items())
        and set(other.unique) <= set(fragment.unique)
    )


def location_of(fragment: Fragment) -> tuple[str, str, str]:
    return fragment.class_name, fragment.stored_as, fragment.system


def _storage_of(
    present: Mapping[str, Any] | None,
    groups: Mapping[str, GroupPlacement],
    retyped: Collection[str],
    now: float,
    *,
    holding: bool,
) -> dict[str, Any]:
    """Return the generation of a class, its stored names, and those of fields that were dropped.

    Objects still hold the values of `erasing` names. `freed` names are schema names, not stored
    ones.
    """
    generation = _generation(present, groups, holding=holding)
    if present is None or generation != present["generation"]:
        entry = {"generation": generation, "made_us": int(now * 1e6)}
        return {**entry, "left": {}, "names": {}, "freed": [], "dropped": [], "erasing": []}
    names, dropped = present["names"], {*present["dropped"]}
    before = {name for placed in present["groups"].values() for name in placed["fields"]}
    fields = [name for placed in groups.values() for name in placed.fields]
    stored_names = {
        name: names.get(name, name) for name in before.intersection(fields) - {*retyped}
    }
    ended_fields = before.difference(fields)
    if not holding:
        # A store prepares a field again whose stored name returns, but not in the same change.
        ended_fields = ended_fields.intersection(names) | before.intersection(retyped)
    ended_names = {names.get(name, name) for name in ended_fields}
    dropped |= ended_names
    taken = {*stored_names.values(), *dropped}
    for name in fields:
        if name not in stored_names:
            stored_names[name] = _free_name(name, taken)
            taken.add(stored_names[name])
    renamed = {name: stored for name, stored in sorted(stored_names.items()) if name != stored}
    return {
        "generation": generation,
        "made_us": present["made_us"],
        "left": _departures(present, groups),
        "names": renamed,
        "freed": sorted({*present["freed"], *before}.difference(fields)),
        "dropped": sorted(dropped),
        "erasing": sorted({*present["erasing"], *ended_names}),
    }


def _free_name(name: str, taken: Collection[str]) -> str:
    """Return an unused stored name of a field: its name, or that with a number at its end."""
    if name not in taken:
        return name
    suffixes = (f"_{number}" for number in count(2))
    candidates = (name[: _NAME_LENGTH - len(suffix)] + suffix for suffix in suffixes)
    return next(candidate for candidate in candidates if candidate not in taken)


def _generation(
    present: Mapping[str, Any] | None, groups: Mapping[str, GroupPlacement], *, holding: bool
) -> str:
    """Keep the present generation of a class if it holds objects, or stays on all its systems."""
    if present is not None and (holding or not _left_systems(present, groups)):
        return str(present["generation"])
    return token_hex(6)


def _left_systems(present: Mapping[str, Any], groups: Mapping[str, GroupPlacement]) -> set[str]:
    """Return the systems that a class leaves."""
    before = {placed["system"] for placed in present["groups"].values()}
    return before - {placed.system for placed in groups.values()}


def _departures(present: Mapping[str, Any], groups: Mapping[str, GroupPlacement]) -> dict[str, int]:
    """Return how often a class has left systems: its location changes when it returns."""
    times = present["left"]
    return {
        **times,
        **{system: times.get(system, 0) + 1 for system in _left_systems(present, groups)},
    }


def _with_identity(route: ClassRoute, stored: StoredDatabase) -> ClassRoute:
    layout = stored.layout[route.schema.name]
    generation, names, departures = layout["generation"], layout["names"], layout["left"]

    def identify(fragment: Fragment) -> Fragment:
        times = departures.get(fragment.system)
        suffix = f"_{times}" if times else ""
        stored_as = f"{fragment.class_name}_{generation}{suffix}"
        return replace(fragment, database_id=stored.id, stored_as=stored_as)

    def identify_with_names(fragment: Fragment) -> Fragment:
        stored_names = {name: names[name] for name in names.keys() & fragment.fields.keys()}
        return replace(identify(fragment), stored_names=stored_names)

    copy = identify(route.copy) if route.copy is not None else None
    fragments = tuple(map(identify_with_names, route.fragments))
    dropped, made_us = frozenset(layout["dropped"]), layout["made_us"]
    return replace(route, fragments=fragments, copy=copy, dropped=dropped, made_us=made_us)


def _group_placement(form: Mapping[str, Any]) -> GroupPlacement:
    return GroupPlacement(form["system"], tuple(form["fields"]))
