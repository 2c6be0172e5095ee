"""Renders a schema as JSON, complete with defaults, in the form that the parser reads."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from mediator.base.offload import throttled
from mediator.schema.annotations import Annotation, BinaryRequirement, Sigmoid, Utility
from mediator.schema.tree import MAIN_GROUP, ClassSchema, Field, Generated, MissingType, Schema
from mediator.schema.values import encoder

__all__ = ["schema_document"]


def schema_document(schema: Schema) -> dict[str, Any]:
    """Render a schema as JSON, ready for orjson.

    Every member that has a default is written. Omitted are members that a field does not have:
    `items`, `to`, `on_delete`, `default`, `updated`, `unique`, `indexed_paths`, `system` and
    constraints; and `statistic` and `violation` of an annotation.
    """
    return {
        "mode": schema.mode.value,
        "materialised_view": asdict(schema.materialised_view),
        "default": asdict(schema.default),
        "system": schema.system,
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
        "system": schema.system,
        "unique": [list(names) for names in schema.unique],
        "indexes": [{"fields": list(index.fields)} for index in schema.indexes],
        "batching": None if schema.batching is None else asdict(schema.batching),
        "fields": {
            name: _field_document(field) for name, field in throttled(schema.fields.items())
        },
    }


def _field_document(field: Field) -> dict[str, Any]:
    encode, default = encoder(field), field.default

    def encoded(value: Any) -> Any:
        return value if value is None or encode is None else encode(value)

    document: dict[str, Any] = {
        "type": field.type.value,
        "items": None if field.items is None else field.items.value,
        "to": field.to,
        "max_length": field.max_length,
        "min_length": field.min_length,
        "minimum": encoded(field.minimum),
        "maximum": encoded(field.maximum),
        "enum": field.enum,
        "pattern": field.pattern,
        "system": field.system,
    }
    document = {name: value for name, value in document.items() if value is not None}
    if isinstance(default, Generated):
        document["default"] = default.value
    elif not isinstance(default, MissingType):
        document["default"] = encoded(default)
    document |= {flag: True for flag in ("updated", "unique") if getattr(field, flag)}
    if field.indexed_paths:
        document["indexed_paths"] = list(field.indexed_paths)
    if field.on_delete is not None:
        document["on_delete"] = field.on_delete.value
    return document | {
        "required": field.required,
        "index": field.index,
        "group": field.group or MAIN_GROUP,
        "annotations": _annotation_documents(field.annotations),
    }


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
