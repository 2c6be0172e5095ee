"""The OpenAPI document of a database: the routes of the data API, with the classes by their names.

It is the document of the service, in which each path of a class stands once for every class.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from app.api.models.common import ref
from app.api.openapi.class_schemas import class_schemas, conditions, operator_schemas
from app.api.openapi.components import COMPONENTS, SECURITY
from app.api.openapi.document import data_paths
from mediator.base.offload import throttled
from mediator.schema.tree import ClassSchema

__all__ = ["database_document"]

_CLASS: Final = "{class}"
_DATABASE: Final = "{database}"
_PATHS: Final = data_paths()
_OF_OBJECTS: Final = "ObjectQuery"


class _References(NamedTuple):
    """What stands for references to components.

    Attributes:
        single: Of a member: what it is instead.
        listed: Of an element of a list: the elements instead of it.
    """

    single: Mapping[str, Any]
    listed: Mapping[str, Sequence[Any]]

    def replace(self, node: Any) -> Any:
        if isinstance(node, dict):
            named = node.get("$ref", "")
            if named in self.single:
                return self.single[named]
            return {name: self.replace(member) for name, member in node.items()}
        if isinstance(node, list):
            return [each for element in node for each in self._elements(element)]
        return node

    def _elements(self, node: Any) -> Sequence[Any]:
        if isinstance(node, dict) and (named := node.get("$ref", "")) in self.listed:
            return self.listed[named]
        return [self.replace(node)]


def database_document(database: str, classes: Collection[ClassSchema]) -> dict[str, Any]:
    """Describe the routes of a database, and of some of its classes, in OpenAPI 3.1.

    Queries are described as far as they return objects: what aggregates return has no class.
    """
    return {
        "openapi": "3.1.0",
        "info": {
            "title": f"Portolan: {database}",
            "summary": f"The data API of the database {database}.",
            "version": "1",
        },
        "security": SECURITY,
        "tags": [{"name": class_.name} for class_ in classes],
        "paths": _paths(database, classes),
        "components": _components(classes),
    }


def _paths(database: str, classes: Collection[ClassSchema]) -> dict[str, Any]:
    paths = {}
    for template, item in _PATHS.items():
        path = template.replace(_DATABASE, database)
        if _CLASS not in path:
            paths[path] = _of_database().replace(item)
    for class_ in throttled(classes):
        for template, item in _PATHS.items():
            if _CLASS in template:
                path = template.replace(_DATABASE, database).replace(_CLASS, class_.name)
                paths[path] = _item(class_.name, item)
    return paths


def _item(class_name: str, item: Mapping[str, Any]) -> dict[str, Any]:
    of_class, of_whole = _of_class(class_name), _of_class(class_name, "fields")
    return {
        # A put of some fields has a body of another shape.
        name: (of_whole if name == "put" else of_class).replace(_named(member, class_name))
        for name, member in item.items()
    }


def _named(operation: Any, class_name: str) -> Any:
    """Give an operation of a class, which stands once for each class, a name and a tag."""
    if not isinstance(operation, dict) or "operationId" not in operation:
        return operation
    name = f"{operation['operationId']}_{class_name}"
    return {**operation, "operationId": name, "tags": [class_name]}


def _of_database() -> _References:
    return _References({}, {_parameter("database"): ()})


def _of_class(class_name: str, *left_out: str) -> _References:
    without = ("database", "class", "aggregate", *left_out)
    shared = ref("parameters", f"{class_name}.conditions")
    patch = ref("schemas", f"{class_name}.patch")
    return _References(
        {
            _schema("StoredObject"): ref("schemas", class_name),
            _schema("Object"): ref("schemas", f"{class_name}.new"),
            _schema("MergePatch"): patch,
            _schema("OperatorPatch"): ref("schemas", f"{class_name}.operators"),
            _schema("Patch"): {"oneOf": [patch, ref("schemas", "JsonPatch")]},
            _schema("Listing"): ref("schemas", f"{class_name}.page"),
            _schema("Query"): ref("schemas", _OF_OBJECTS),
        },
        {
            _parameter("filter"): (ref("parameters", "filter"), shared),
            **{_parameter(name): () for name in without},
        },
    )


def _schema(name: str) -> str:
    return f"#/components/schemas/{name}"


def _parameter(name: str) -> str:
    return f"#/components/parameters/{name}"


def _components(classes: Collection[ClassSchema]) -> dict[str, Any]:
    shown = {class_.name for class_ in classes}
    schemas = {**COMPONENTS["schemas"], _OF_OBJECTS: _object_query()}
    parameters = dict(COMPONENTS["parameters"])
    for class_ in classes:
        described = class_schemas(class_, shown)
        schemas |= {class_.name + end: schema for end, schema in described.items()}
        schemas[f"{class_.name}.page"] = _page(class_.name)
        schemas |= operator_schemas(class_)
        parameters[f"{class_.name}.conditions"] = conditions(class_)
    return {**COMPONENTS, "schemas": schemas, "parameters": parameters}


def _object_query() -> dict[str, Any]:
    query = COMPONENTS["schemas"]["Query"]
    kept = {name: each for name, each in query["properties"].items() if name != "aggregate"}
    return {**query, "properties": kept}


def _page(class_name: str) -> dict[str, Any]:
    listing = COMPONENTS["schemas"]["Listing"]
    items = {"type": "array", "items": ref("schemas", class_name)}
    described = {"title": f"{class_name}.page", "description": f"A page of {class_name}."}
    return {**listing, **described, "properties": {**listing["properties"], "items": items}}
