"""Rendering a schema as JSON: complete, so that `parse_schema` returns the same schema."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from mediator.base.offload import throttled
from mediator.schema.annotations import Annotation, BinaryRequirement, Sigmoid, Utility
from mediator.schema.tree import MAIN_GROUP, ClassSchema, Field, MissingType, Schema
from mediator.schema.types import Value
from mediator.schema.values import encoder

__all__ = ["schema_document"]


def schema_document(schema: Schema) -> dict[str, Any]:
    """Write a schema as JSON, ready for orjson.

    Every member that has a default is written. Left out is only what a field has none of:
    `items`, `to`, `max_length`, `default`; and `statistic` and `violation` of an annotation.
    """
    return {
        "mode": schema.mode.value,
        "materialised_view": asdict(schema.materialised_view),
        "default": asdict(schema.default),
        "annotations": _annotations(schema.annotations),
        "classes": {name: _class(member) for name, member in schema.classes.items()},
    }


def _class(schema: ClassSchema) -> dict[str, Any]:
    return {
        "annotations": _annotations(schema.annotations),
        "cache": asdict(schema.cache),
        "require_if_match": schema.require_if_match,
        "ttl_s": schema.ttl_s,
        "owner_field": schema.owner_field,
        "fields": {name: _field(field) for name, field in throttled(schema.fields.items())},
    }


def _field(field: Field) -> dict[str, Any]:
    document: dict[str, Any] = {
        "type": field.type.value,
        "items": None if field.items is None else field.items.value,
        "to": field.to,
        "max_length": field.max_length,
    }
    document = {name: value for name, value in document.items() if value is not None}
    if not isinstance(field.default, MissingType):
        document["default"] = _default(field, field.default)
    return document | {
        "required": field.required,
        "index": field.index,
        "group": field.group or MAIN_GROUP,
        "annotations": _annotations(field.annotations),
    }


def _default(field: Field, value: Value) -> Any:
    encode = encoder(field)
    return value if encode is None or value is None else encode(value)


def _annotations(annotations: tuple[Annotation, ...]) -> list[dict[str, Any]]:
    return [_annotation(annotation) for annotation in annotations]


def _annotation(annotation: Annotation) -> dict[str, Any]:
    if isinstance(annotation, BinaryRequirement):
        return {"require": annotation.capability.value}
    document: dict[str, Any] = {"metric": annotation.metric.value, "weight": annotation.weight}
    if annotation.utility is None:
        document["goal"] = annotation.goal
    else:
        document["utility"] = _utility(annotation.utility)
    if annotation.metric.small_is_good:
        document["statistic"] = annotation.statistic
    if annotation.violation is not None:
        document["violation"] = asdict(annotation.violation)
    return document


def _utility(utility: Utility) -> dict[str, Any]:
    if isinstance(utility, Sigmoid):
        return asdict(utility)
    return {"shape": utility.shape, "points": [list(point) for point in utility.points]}
