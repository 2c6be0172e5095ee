"""The OpenAPI document of a database: the routes of the data API for its classes.

It is the document of the service, with each path of a class repeated for every class.
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
_OBJECT_QUERY: Final = "ObjectQuery"


class _References(NamedTuple):
    """Replacements of references to components.

    Attributes:
        single: The replacement of a reference that is a member.
        listed: The elements that replace a reference in a list.
    """

    single: Mapping[str, Any]
    listed: Mapping[str, Sequence[Any]]

    def replace(self, node: Any) -> Any:
        if isinstance(node, dict):
            reference = node.get("$ref", "")
            if reference in self.single:
                return self.single[reference]
            return {name: self.replace(member) for name, member in node.items()}
        if isinstance(node, list):
            return [replacement for element in node for replacement in self._elements(element)]
        return node

    def _elements(self, node: Any) -> Sequence[Any]:
        if isinstance(node, dict) and (reference := node.get("$ref", "")) in self.listed:
            return self.listed[reference]
        return [self.replace(node)]


def database_document(database: str, classes: Collection[ClassSchema]) -> dict[str, Any]:
    """Describe the routes of a database, and of some of its classes, in OpenAPI 3.1.

    Queries are described without aggregates, whose results have no class.
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
    references, put_references = _of_class(class_name), _of_class(class_name, "fields")
    return {
        # A put of selected fields has a body of another shape, so `fields` is left out.
        name: (put_references if name == "put" else references).replace(
            _rename_operation(member, class_name)
        )
        for name, member in item.items()
    }


def _rename_operation(operation: Any, class_name: str) -> Any:
    """Give the copy of an operation for a class its own id and tag."""
    if not isinstance(operation, dict) or "operationId" not in operation:
        return operation
    name = f"{operation['operationId']}_{class_name}"
    return {**operation, "operationId": name, "tags": [class_name]}


def _of_database() -> _References:
    return _References({}, {_parameter("database"): ()})


def _of_class(class_name: str, *omitted: str) -> _References:
    omitted_parameters = ("database", "class", "aggregate", *omitted)
    conditions_reference = ref("parameters", f"{class_name}.conditions")
    patch = ref("schemas", f"{class_name}.patch")
    return _References(
        {
            _schema("StoredObject"): ref("schemas", class_name),
            _schema("Object"): ref("schemas", f"{class_name}.new"),
            _schema("MergePatch"): patch,
            _schema("OperatorPatch"): ref("schemas", f"{class_name}.operators"),
            _schema("Patch"): {"oneOf": [patch, ref("schemas", "JsonPatch")]},
            _schema("Listing"): ref("schemas", f"{class_name}.page"),
            _schema("Query"): ref("schemas", _OBJECT_QUERY),
        },
        {
            _parameter("filter"): (ref("parameters", "filter"), conditions_reference),
            **{_parameter(name): () for name in omitted_parameters},
        },
    )


def _schema(name: str) -> str:
    return f"#/components/schemas/{name}"


def _parameter(name: str) -> str:
    return f"#/components/parameters/{name}"


def _components(classes: Collection[ClassSchema]) -> dict[str, Any]:
    class_names = {class_.name for class_ in classes}
    schemas = {**COMPONENTS["schemas"], _OBJECT_QUERY: _object_query()}
    parameters = dict(COMPONENTS["parameters"])
    for class_ in classes:
        by_suffix = class_schemas(class_, class_names)
        schemas |= {class_.name + suffix: schema for suffix, schema in by_suffix.items()}
        schemas[f"{class_.name}.page"] = _page(class_.name)
        schemas |= operator_schemas(class_)
        parameters[f"{class_.name}.conditions"] = conditions(class_)
    return {**COMPONENTS, "schemas": schemas, "parameters": parameters}


def _object_query() -> dict[str, Any]:
    query = COMPONENTS["schemas"]["Query"]
    properties = {
        name: property_ for name, property_ in query["properties"].items() if name != "aggregate"
    }
    return {**query, "properties": properties}


def _page(class_name: str) -> dict[str, Any]:
    listing = COMPONENTS["schemas"]["Listing"]
    items = {"type": "array", "items": ref("schemas", class_name)}
    heading = {"title": f"{class_name}.page", "description": f"A page of {class_name}."}
    return {**listing, **heading, "properties": {**listing["properties"], "items": items}}
