"""Validating `owner_field`, the field that names the owner of an object."""

from __future__ import annotations

from mediator.schema.json_node import Node
from mediator.schema.tree import ClassSchema, Field
from mediator.schema.types import FieldType

__all__ = ["check_owner"]


def check_owner(schema: ClassSchema, node: Node) -> None:
    """Note what keeps a class's `owner_field` from naming the owner of every object."""
    if schema.owner_field is None:
        return
    field = schema.fields.get(schema.owner_field)
    if field is None:
        node["owner_field"].error("is no field of this class")
    else:
        _check_field(field, node["fields"][field.name])
    if schema.cache.visibility != "none":
        # Caches know no owners, and the sketch reveals changes of everybody's objects.
        node["cache"]["visibility"].error("must be none, because of owner_field")


def _check_field(field: Field, node: Node) -> None:
    if field.type is not FieldType.STRING:
        node["type"].error("must be string, because objects are owned by it")
    if not field.required:
        node["required"].error("must be true, because objects are owned by it")
    if not field.index:
        node["index"].error("must be true, because every query asks for it")
    if field.group is not None:
        node["group"].error("must be main, because it lives and dies with the object")
