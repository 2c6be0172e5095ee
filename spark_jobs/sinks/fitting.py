"""Whether the result of a job fits the class it goes into: by its columns, before it is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mediator.base.errors import Location
from mediator.schema.tree import MISSING, ClassSchema, Field
from mediator.schema.types import FieldType
from spark_jobs.runner.job import Into
from spark_jobs.runner.port import ColumnType

__all__ = ["misfits"]

_TAKES: Final[Mapping[FieldType, frozenset[ColumnType]]] = {
    FieldType.INTEGER: frozenset({"integer"}),
    FieldType.FLOAT: frozenset({"integer", "number"}),
    FieldType.BOOLEAN: frozenset({"boolean"}),
    FieldType.DOCUMENT: frozenset({"object"}),
    FieldType.MAP: frozenset({"object"}),
    FieldType.LIST: frozenset({"array"}),
    FieldType.SET: frozenset({"array"}),
}
_TEXT: Final[frozenset[ColumnType]] = frozenset({"string"})
"""What all other types of fields take; whether a string is a time, say, its value decides."""


def misfits(into: Into, columns: Mapping[str, ColumnType], schema: ClassSchema) -> list[Location]:
    """Say why no row of a result can become an object of a class, as it is now.

    Returns:
        Every mistake, with its location in the job; none if rows fit, as far as their types show.
    """
    there = ", ".join(columns)
    ids = (
        f"the result has no column {name} to make ids of; it has: {there}"
        for name in into.id
        if name not in columns
    )
    fields = (
        *(_reason(into, name, type_, schema) for name, type_ in columns.items()),
        *(_lacking(into, field) for name, field in schema.fields.items() if name not in columns),
    )
    return [
        *(Location("/into/id", reason) for reason in ids),
        *(Location("/into/class", reason) for reason in fields if reason is not None),
    ]


def _reason(into: Into, name: str, type_: ColumnType, schema: ClassSchema) -> str | None:
    """Say why a column cannot be a field."""
    field = schema.fields.get(name)
    if field is None:
        known = name in into.id  # such a column may be in the id alone
        return None if known else f"{into.class_name} has no field {name}, which the result has"
    if type_ in _TAKES.get(field.type, _TEXT):
        return None
    return f"{into.class_name}.{name} is of type {field.type}, and the result has {type_} there"


def _lacking(into: Into, field: Field) -> str | None:
    """Say why a field cannot be left out."""
    if not field.required or field.default is not MISSING:
        return None
    return f"{into.class_name}.{field.name} is required, and the result has no such column"
