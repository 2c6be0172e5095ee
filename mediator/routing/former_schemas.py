"""A former version of a schema mapped to the present: present classes under that version's names.

Only names are those of the version. Types, constraints, defaults and rules are the present ones:
they bind stored data. So a client's values become present values by renaming alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from mediator.base.errors import NotFound
from mediator.routing.model import ClassRoute, DatabaseRoute, RoutingModel
from mediator.schema.name_changes import FieldNames
from mediator.schema.tree import ClassSchema, Field
from mediator.stores.port import Fragment

__all__ = ["ClassNames", "FormerSchema", "former_schema"]


class ClassNames:
    """The names of one class's fields in a version, and now.

    Attributes:
        present: The present names, by those of the version.
        former: The names of the version, by the present ones.
        hidden: The fields that the version does not have, by their present names.
    """

    __slots__ = ("former", "hidden", "present")

    def __init__(self, present: Mapping[str, str], fields: Collection[str]) -> None:
        self.present = present
        self.former = {now: name for name, now in present.items()}
        self.hidden = frozenset(fields) - self.former.keys()

    def all_present(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple([self.present[name] for name in names])


@dataclass(frozen=True, eq=False)
class FormerSchema:
    """A version of a database's schema, for requests that are pinned to it.

    Attributes:
        database: Its name.
        version: The version.
        now: The present routes, from which it was made.
        model: A routing model of this database alone, under the names of the version, for parsing
            requests and encoding responses. It is not used for execution.
        names: The names of each class that the version has.
    """

    database: str
    version: int
    now: DatabaseRoute
    model: RoutingModel
    names: Mapping[str, ClassNames] = field(default_factory=dict)

    @property
    def classes(self) -> Mapping[str, ClassRoute]:
        return self.model.databases[self.database].classes

    def route_of(self, class_name: str) -> ClassRoute:
        """Return a route; `NotFound` if the version has no such class, or another of the name."""
        route = self.classes.get(class_name)
        if route is None:
            raise NotFound(f"Version {self.version} of {self.database} has no class {class_name}.")
        return route


def former_schema(now: DatabaseRoute, version: int, names: FieldNames) -> FormerSchema:
    """Return a version, given the present name of each of its remaining fields."""
    names_by_class = {
        name: _class_names(now.classes[name], names) for name in names.keys() & now.classes.keys()
    }
    classes = {
        name: _former_route(now.classes[name], class_names)
        for name, class_names in names_by_class.items()
    }
    schema = replace(now.schema, classes={name: route.schema for name, route in classes.items()})
    route = replace(now, schema=schema, classes=classes, version=version)
    database = now.schema.database
    return FormerSchema(database, version, now, RoutingModel(0, {database: route}), names_by_class)


def _class_names(route: ClassRoute, names: FieldNames) -> ClassNames:
    """Return the names of a class, without references to a class that the version lacks."""
    fields = route.schema.fields
    present_names = {
        name: now
        for name, now in names[route.schema.name].items()
        if now in fields and (fields[now].to is None or fields[now].to in names)
    }
    return ClassNames(present_names, fields)


def _former_route(route: ClassRoute, names: ClassNames) -> ClassRoute:
    fragments = tuple([_former_fragment(fragment, names) for fragment in route.fragments])
    return ClassRoute(
        _former_class(route.schema, names),
        route.schema_version,
        fragments,
        partly_unique=_partly_unique(route.schema, names),
    )


def _former_class(schema: ClassSchema, names: ClassNames) -> ClassSchema:
    fields = _former_fields(schema.fields, names)
    unique = tuple(
        [_rename_fields(fields_, names) for fields_ in schema.unique if _has(fields_, names)]
    )
    owner = None if schema.owner_field is None else names.former.get(schema.owner_field)
    indexes = tuple(
        [
            replace(index, fields=_rename_fields(index.fields, names))
            for index in schema.indexes
            if _has(index.fields, names)
        ]
    )
    return replace(schema, fields=fields, unique=unique, owner_field=owner, indexes=indexes)


def _former_fragment(fragment: Fragment, names: ClassNames) -> Fragment:
    groups = {group: _rename_fields(members, names) for group, members in fragment.groups.items()}
    fields = _former_fields(fragment.fields, names)
    return replace(fragment, fields=fields, groups=groups, unique=(), indexes=(), stored_names={})


def _partly_unique(schema: ClassSchema, names: ClassNames) -> frozenset[str]:
    partly = [unique for unique in schema.unique if not _has(unique, names)]
    return frozenset(name for unique in partly for name in _rename_fields(unique, names))


def _has(fields: Iterable[str], names: ClassNames) -> bool:
    return all(name in names.former for name in fields)


def _former_fields(fields: Mapping[str, Field], names: ClassNames) -> dict[str, Field]:
    renamed = [(names.former.get(name), field_) for name, field_ in fields.items()]
    return {name: replace(field_, name=name) for name, field_ in renamed if name is not None}


def _rename_fields(fields: Iterable[str], names: ClassNames) -> tuple[str, ...]:
    return tuple([names.former[name] for name in fields if name in names.former])
