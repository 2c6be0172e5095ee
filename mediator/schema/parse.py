"""A schema as JSON: parsed, with the location of every mistake, and rendered."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any, Final

from pydantic import TypeAdapter

from mediator.base.errors import Location, SchemaInvalid
from mediator.base.offload import throttle, throttled
from mediator.schema.annotations import Annotation, BinaryRequirement, Sigmoid, Utility
from mediator.schema.errors import InvalidValue, invalid, locations_below
from mediator.schema.ids import NAME
from mediator.schema.tree import (
    MAIN_GROUP,
    SCRATCH_DATABASE,
    ClassSchema,
    Field,
    MissingType,
    Schema,
)
from mediator.schema.types import SCALARS, FieldType, Value
from mediator.schema.validation import parse_document
from mediator.schema.values import decoder, encoder

__all__ = ["RESERVED_CLASSES", "SCHEMA", "parse_schema", "schema_document"]

RESERVED_CLASSES: Final = frozenset(
    {"batch", "transactions", "sketch", "changes", "jobs", "streams", "flows", "views", "query"}
)
"""Names of database-level routes, which no class may take (docs/design.md, "Names and ids")."""

SCHEMA: Final = TypeAdapter(Schema)
"""The model of schema documents."""

_ITEM_SCALARS: Final = SCALARS - {FieldType.REFERENCE}  # `to` names the class of a field only
_ITEMS: Final[Mapping[FieldType, frozenset[FieldType]]] = {
    FieldType.SET: _ITEM_SCALARS,
    FieldType.LIST: _ITEM_SCALARS | {FieldType.DOCUMENT},
    FieldType.MAP: _ITEM_SCALARS | {FieldType.DOCUMENT},
}
_TYPES_OF: Final[Mapping[str, Collection[FieldType]]] = {
    "items": _ITEMS.keys(),
    "to": {FieldType.REFERENCE},
    "max_length": {*_ITEMS, FieldType.STRING, FieldType.BINARY},
}
"""The types for which these members have a meaning."""


def parse_schema(database: str, document: Any) -> Schema:
    """Read the schema of a database.

    Args:
        database: Name of the database.
        document: The schema as parsed JSON. Members that are left out have their defaults.

    Returns:
        The schema, with the default group unnamed and all numbers that measure something floats.

    Raises:
        SchemaInvalid: With the JSON pointer of every mistake. Whether members go together is said
            once each of them is right.
    """
    mistakes: list[Location] = []
    if not NAME.fullmatch(database):
        mistakes.append(Location("database", f"must be named like {NAME.pattern}"))
    if database == SCRATCH_DATABASE:
        mistakes.append(Location("database", f"{database} is a reserved name"))
    schema = parse_document(SCHEMA, document, mistakes, SchemaInvalid, name=database)
    classes = {
        name: _class(class_, schema.classes, mistakes) for name, class_ in schema.classes.items()
    }
    if mistakes:
        raise invalid(mistakes, SchemaInvalid)
    return replace(schema, classes=classes)


def _class(class_: ClassSchema, classes: Collection[str], mistakes: list[Location]) -> ClassSchema:
    at = f"/classes/{class_.name}"
    if class_.name in RESERVED_CLASSES:
        mistakes.append(Location(at, f"{class_.name} is a reserved name"))
    fields = {}
    for name, field in class_.fields.items():
        throttle()
        below = f"{at}/fields/{name}"
        mistakes += _mistakes(field, classes, below)
        fields[name] = _normal(field, below, mistakes)
    normal = replace(class_, fields=fields)
    mistakes += _mistakes_of_owner(normal, at)
    return normal


def _mistakes(field: Field, classes: Collection[str], at: str) -> Iterator[Location]:
    """Yield what does not go together with the name and the type of a field."""
    if field.name == "id":
        yield Location(at, "id is a reserved name")
    for member, types in _TYPES_OF.items():
        if getattr(field, member) is not None and field.type not in types:
            yield Location(f"{at}/{member}", f"has no meaning for type {field.type}")
    if field.type in _ITEMS and field.items not in _ITEMS[field.type]:
        known = ", ".join(sorted(_ITEMS[field.type]))
        yield Location(f"{at}/items", f"must be one of {known} for type {field.type}")
    if field.type is FieldType.REFERENCE and field.to not in classes:
        detail = f"there is no class {field.to}" if field.to else "is required for a reference"
        yield Location(f"{at}/to", detail)
    if field.index and field.type not in SCALARS:
        yield Location(f"{at}/index", f"type {field.type} has no order to index")


def _normal(field: Field, at: str, mistakes: list[Location]) -> Field:
    """Decode the default of a field, and leave the main group unnamed."""
    if field.group == MAIN_GROUP:
        field = replace(field, group=None)
    default = field.default
    if default is None and field.required:
        detail = "must not be null, because the field is required"
        mistakes.append(Location(f"{at}/default", detail))
    undecodable = field.type in _ITEMS and field.items not in _ITEMS[field.type]
    if default is None or isinstance(default, MissingType) or undecodable:
        return field
    try:
        return replace(field, default=decoder(field)(default))
    except InvalidValue as error:
        mistakes += locations_below(f"{at}/default", error)
        return field


def _mistakes_of_owner(class_: ClassSchema, at: str) -> Iterator[Location]:
    """Yield what keeps `owner_field` from naming the owner of every object."""
    if class_.owner_field is None:
        return
    field = class_.fields.get(class_.owner_field)
    if field is None:
        yield Location(f"{at}/owner_field", "is no field of this class")
    else:
        demands = (
            ("type", field.type is FieldType.STRING, "string, because objects are owned by it"),
            ("required", field.required, "true, because objects are owned by it"),
            ("index", field.index, "true, because every query filters by it"),
            ("group", not field.group, "main, because it comes and goes with the object"),
        )
        for member, is_met, demand in demands:
            if not is_met:
                yield Location(f"{at}/fields/{field.name}/{member}", f"must be {demand}")
    if class_.cache.visibility != "none":
        # Caches know no owners, and the sketch reveals changes of everybody's objects.
        yield Location(f"{at}/cache/visibility", "must be none, because of owner_field")


def schema_document(schema: Schema) -> dict[str, Any]:
    """Write a schema as JSON, ready for orjson.

    Every member that has a default is written. Left out is only what a field has none of:
    `items`, `to`, `max_length`, `default`; and `statistic` and `violation` of an annotation.
    """
    return {
        "mode": schema.mode.value,
        "materialised_view": asdict(schema.materialised_view),
        "default": asdict(schema.default),
        "annotations": _annotation_documents(schema.annotations),
        "classes": {name: _class_document(member) for name, member in schema.classes.items()},
    }


def _class_document(schema: ClassSchema) -> dict[str, Any]:
    return {
        "annotations": _annotation_documents(schema.annotations),
        "cache": asdict(schema.cache),
        "require_if_match": schema.require_if_match,
        "ttl_s": schema.ttl_s,
        "owner_field": schema.owner_field,
        "fields": {
            name: _field_document(field) for name, field in throttled(schema.fields.items())
        },
    }


def _field_document(field: Field) -> dict[str, Any]:
    document: dict[str, Any] = {
        "type": field.type.value,
        "items": None if field.items is None else field.items.value,
        "to": field.to,
        "max_length": field.max_length,
    }
    document = {name: value for name, value in document.items() if value is not None}
    if not isinstance(field.default, MissingType):
        document["default"] = _default_document(field, field.default)
    return document | {
        "required": field.required,
        "index": field.index,
        "group": field.group or MAIN_GROUP,
        "annotations": _annotation_documents(field.annotations),
    }


def _default_document(field: Field, value: Value) -> Any:
    encode = encoder(field)
    return value if encode is None or value is None else encode(value)


def _annotation_documents(annotations: tuple[Annotation, ...]) -> list[dict[str, Any]]:
    return [_annotation_document(annotation) for annotation in annotations]


def _annotation_document(annotation: Annotation) -> dict[str, Any]:
    if isinstance(annotation, BinaryRequirement):
        return {"require": annotation.capability.value}
    document: dict[str, Any] = {"metric": annotation.metric.value, "weight": annotation.weight}
    if annotation.utility is None:
        document["goal"] = annotation.goal
    else:
        document["utility"] = _utility_document(annotation.utility)
    if annotation.metric.small_is_good:
        document["statistic"] = annotation.statistic
    if annotation.violation is not None:
        document["violation"] = asdict(annotation.violation)
    return document


def _utility_document(utility: Utility) -> dict[str, Any]:
    if isinstance(utility, Sigmoid):
        return asdict(utility)
    return {"shape": utility.shape, "points": [list(point) for point in utility.points]}
