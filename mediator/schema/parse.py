"""Parsing a schema from JSON: exactly one shape, and every error with its location."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, cast

from mediator.base.errors import Location, SchemaInvalid
from mediator.base.offload import throttle
from mediator.schema.annotation_parser import read_annotations
from mediator.schema.errors import InvalidValue, invalid
from mediator.schema.json_node import FIELD_NAME, NAME, POSITIVE, Node
from mediator.schema.limits import (
    CACHE_COST_MAX,
    CACHE_COST_MIN,
    CACHE_MAX_TTL_S,
    CLASSES_PER_DATABASE,
    FIELDS_PER_CLASS,
    MAX_LENGTH,
    OBJECT_TTL_MAX_S,
)
from mediator.schema.owner import check_owner
from mediator.schema.tree import (
    MAIN_GROUP,
    MISSING,
    SCRATCH_DATABASE,
    CachePolicy,
    ClassSchema,
    DefaultSystem,
    Field,
    MaterialisedView,
    MissingType,
    Mode,
    Schema,
    Visibility,
)
from mediator.schema.types import SCALARS, FieldType, Value
from mediator.schema.values import decoder

__all__ = ["RESERVED_CLASSES", "parse_schema"]

RESERVED_CLASSES: Final = frozenset(
    {"batch", "transactions", "sketch", "changes", "jobs", "streams", "flows", "views", "query"}
)
"""Names of database-level routes, which no class may take (docs/design.md, "Names and ids")."""

_CONTAINERS = frozenset({FieldType.LIST, FieldType.SET, FieldType.MAP})
_CLASS_MEMBERS = (
    "annotations",
    "cache",
    "require_if_match",
    "ttl_s",
    "owner_field",
    "fields",
)
_FIELD_MEMBERS = (
    *("items", "to", "required", "max_length", "default", "index", "group"),
    "annotations",
)
_ITEM_SCALARS = SCALARS - {FieldType.REFERENCE}  # `to` names the class of a field only
_MEASURED = _CONTAINERS | {FieldType.STRING, FieldType.BINARY}
_ITEMS: Mapping[FieldType, frozenset[FieldType]] = {
    FieldType.SET: _ITEM_SCALARS,
    FieldType.LIST: _ITEM_SCALARS | {FieldType.DOCUMENT},
    FieldType.MAP: _ITEM_SCALARS | {FieldType.DOCUMENT},
}


def parse_schema(database: str, document: Any) -> Schema:
    """Read the schema of a database.

    Args:
        database: Name of the database.
        document: The schema as parsed JSON. Members that are left out have their defaults.

    Returns:
        The schema, with the default group unnamed and all numbers that measure something floats.

    Raises:
        SchemaInvalid: With the JSON pointer of every mistake.
    """
    errors: list[Location] = []
    if not NAME.fullmatch(database):
        errors.append(Location("database", f"must be named like {NAME.pattern}"))
    if database == SCRATCH_DATABASE:
        errors.append(Location("database", f"{database} is a reserved name"))
    schema = _schema(database, Node(document, "", errors))
    if errors:
        raise invalid(errors, SchemaInvalid)
    return schema


def _schema(database: str, node: Node) -> Schema:
    node.shape("mode", "materialised_view", "default", "annotations", "classes")
    known = node["classes"].value
    classes = frozenset(known) if isinstance(known, dict) else frozenset()
    return Schema(
        database=database,
        mode=node["mode"].choice(Mode) or Mode.MIXED,
        materialised_view=_materialised_view(node["materialised_view"]),
        default=_default_system(node["default"]),
        annotations=read_annotations(node["annotations"], "database"),
        classes={
            name: _class(name, member, classes)
            for name, member in node["classes"].members(CLASSES_PER_DATABASE, NAME)
        },
    )


def _materialised_view(node: Node) -> MaterialisedView:
    if not node.given:
        return MaterialisedView()
    node.shape("system", "staleness_s")
    return MaterialisedView(
        system=_system(node["system"]),
        staleness_s=node["staleness_s"].number(MaterialisedView().staleness_s, least=POSITIVE),
    )


def _default_system(node: Node) -> DefaultSystem:
    return DefaultSystem(_system(node.shape("system")["system"])) if node.given else DefaultSystem()


def _system(node: Node) -> str | None:
    return None if node.value is None else node.name()


def _class(name: str, node: Node, classes: frozenset[str]) -> ClassSchema:
    if name in RESERVED_CLASSES:
        node.error(f"{name} is a reserved name")
    node.shape(*_CLASS_MEMBERS)
    owner = node["owner_field"]
    schema = ClassSchema(
        name=name,
        annotations=read_annotations(node["annotations"], "class"),
        cache=_cache(node["cache"]),
        require_if_match=node["require_if_match"].boolean(),
        ttl_s=_ttl(node["ttl_s"]),
        owner_field=None if owner.value is None else owner.name(FIELD_NAME),
        fields={
            field_name: _field(field_name, member, classes)
            for field_name, member in node["fields"].members(FIELDS_PER_CLASS, FIELD_NAME)
        },
    )
    check_owner(schema, node)
    return schema


def _cache(node: Node) -> CachePolicy:
    if not node.given:
        return CachePolicy()
    node.shape("visibility", "max_ttl_s", "invalidation_cost", "stale_cost")
    default = CachePolicy()
    visibility = node["visibility"].word("public", "private", "none") or default.visibility
    return CachePolicy(
        visibility=cast("Visibility", visibility),
        max_ttl_s=node["max_ttl_s"].number(default.max_ttl_s, least=POSITIVE, most=CACHE_MAX_TTL_S),
        invalidation_cost=_cost(node["invalidation_cost"], default.invalidation_cost),
        stale_cost=_cost(node["stale_cost"], default.stale_cost),
    )


def _cost(node: Node, default: float) -> float:
    return node.number(default, least=CACHE_COST_MIN, most=CACHE_COST_MAX)


def _ttl(node: Node) -> float | None:
    if not node.given or node.value is None:
        return None
    return node.number(least=1.0, most=OBJECT_TTL_MAX_S)


def _field(name: str, node: Node, classes: frozenset[str]) -> Field:
    throttle()
    if name == "id":
        node.error("id is a reserved name")
    node.shape(*_FIELD_MEMBERS, required=("type",))
    type_ = node["type"].choice(FieldType)
    field = Field(
        name=name,
        type=type_ or FieldType.STRING,
        required=node["required"].boolean(),
        group=_group(node["group"]),
        annotations=read_annotations(node["annotations"], "field"),
    )
    return field if type_ is None else _typed(field, node, classes)


def _typed(field: Field, node: Node, classes: frozenset[str]) -> Field:
    field = replace(
        field,
        items=_items(node["items"], field.type),
        to=_target(node["to"], field.type, classes),
        max_length=_max_length(node["max_length"], field.type),
        index=_index(node["index"], field.type),
    )
    if field.type in _CONTAINERS and field.items is None:
        return field
    return replace(field, default=_default(node["default"], field))


def _group(node: Node) -> str | None:
    name = node.name()
    return None if name == MAIN_GROUP else name


def _items(node: Node, type_: FieldType) -> FieldType | None:
    if type_ not in _CONTAINERS:
        _forbid(node, type_)
        return None
    if not node.given:
        node.error(f"is required for type {type_}")
        return None
    items = node.choice(FieldType)
    if items is None or items in _ITEMS[type_]:
        return items
    node.error(f"must be one of {', '.join(sorted(_ITEMS[type_]))} for type {type_}")
    return None


def _target(node: Node, type_: FieldType, classes: frozenset[str]) -> str | None:
    if type_ is not FieldType.REFERENCE:
        _forbid(node, type_)
        return None
    if not node.given:
        node.error("is required for a reference")
    target = node.name()
    if target is not None and target not in classes:
        node.error(f"there is no class {target}")
    return target


def _max_length(node: Node, type_: FieldType) -> int | None:
    if type_ not in _MEASURED:
        _forbid(node, type_)
        return None
    return node.integer(1, least=1, most=MAX_LENGTH) if node.given else None


def _index(node: Node, type_: FieldType) -> bool:
    index = node.boolean()
    if index and type_ not in SCALARS:
        node.error(f"type {type_} has no order to index")
    return index


def _forbid(node: Node, type_: FieldType) -> None:
    if node.given:
        node.error(f"has no meaning for type {type_}")


def _default(node: Node, field: Field) -> Value | MissingType:
    if not node.given:
        return MISSING
    if node.value is None:
        if field.required:
            node.error("must not be null, because the field is required")
        return None
    try:
        value: Value = decoder(field)(node.value)
    except InvalidValue as error:
        for location in error.locations:
            below = Node(node.value, node.pointer + location.pointer, node.errors)
            below.error(location.detail)
        return MISSING
    return value
