"""JSON Schemas (2020-12) of the objects of a class, in answers and in writes.

A constraint that JSON Schema cannot express is in the description of its field.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from typing import Any, Final

from app.api.models.common import ID_SCHEMA
from app.api.openapi.grammar import one_of
from mediator.base.offload import throttled
from mediator.model.operators import APPLICABLE, Operator
from mediator.query.parameters import RESERVED
from mediator.schema.limits import DECIMAL_TEXT_LENGTH
from mediator.schema.tree import ClassSchema, Field, Generated, MissingType, OnDelete
from mediator.schema.types import ARRAYS, FieldType
from mediator.schema.values import encoder

__all__ = ["class_schemas", "conditions", "operator_schemas"]

_DECIMAL: Final = r"^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,6})?$"
_SCALARS: Final[Mapping[FieldType, dict[str, Any]]] = {
    FieldType.STRING: {"type": "string"},
    FieldType.INTEGER: {"type": "integer", "format": "int64"},
    FieldType.FLOAT: {"type": "number", "format": "double"},
    FieldType.DECIMAL: {
        "type": "string",
        "format": "decimal",
        "pattern": _DECIMAL,
        "maxLength": DECIMAL_TEXT_LENGTH,
    },
    FieldType.BOOLEAN: {"type": "boolean"},
    FieldType.TIMESTAMP: {"type": "string", "format": "date-time"},
    FieldType.BINARY: {"type": "string", "contentEncoding": "base64"},
    FieldType.REFERENCE: ID_SCHEMA,
    FieldType.DOCUMENT: {"type": "object"},
}
_TRUE: Final = {"const": True}
_KEY: Final = {"type": "string", "minLength": 1}
_SHARED_PATTERN: Final = re.compile(
    r"""(?:
        [^\\(\[\]{}]                            # a character
      | \\[\\.^$*+?()\[\]{}|/dDwWbB]            # an escape
      | \((?:\?:|(?!\?))                        # the start of a group without flags
      | \{[0-9]+(?:,[0-9]*)?\}                  # a repetition
      | \[\^?+(?:[^\\\[\]]|\\[\\\[\]^-]|\\[dDwW](?!-[^\]]))+\]
    )*""",
    re.VERBOSE,
)
"""Patterns with one meaning in RE2 and ECMAScript, which JSON Schema uses (2020-12, core, 6.4)."""

_ON_DELETE: Final[Mapping[OnDelete, str]] = {
    OnDelete.REFUSE: "It is not deleted as long as this refers to it.",
    OnDelete.CASCADE: "If it is deleted, so is the object that refers to it.",
    OnDelete.NULLIFY: "If it is deleted, this becomes null.",
}
_ON_DELETE_OF_ELEMENTS: Final[Mapping[OnDelete, str]] = {
    OnDelete.REFUSE: "None is deleted as long as this refers to it.",
    OnDelete.CASCADE: "If one is deleted, so is the object that refers to it.",
    OnDelete.NULLIFY: "If one is deleted, it is removed from here.",
}
_PARAMETERS: Final = RESERVED | {"ids", "all", "dry_run"}
"""Names of parameters that are not conditions; a field of such a name needs ``.eq``."""

_RANGE_OPERATORS: Final = ("lt", "le", "gt", "ge")
_LIST_OPERATORS: Final = ("in", "between")


def class_schemas(schema: ClassSchema, described_classes: Container[str]) -> dict[str, Any]:
    """Describe the objects of a class.

    Args:
        schema: The class.
        described_classes: The classes that the document describes; others are not named.

    Returns:
        The `StoredObject`, `Object`, `MergePatch` and `OperatorPatch` of this class, by suffixes of
        their names.
    """
    fields = [*throttled(schema.fields.values())]
    writable = [field for field in fields if not field.updated]
    values = {field.name: _value_schema(field, described_classes) for field in fields}
    if schema.owner_field is not None:
        owner = values[schema.owner_field]
        values[schema.owner_field] = _with_note(owner, "Unless given, the subject of the creator.")
    object_ = {f.name: _field_schema(f, values[f.name]) for f in fields}
    new = {f.name: object_[f.name] for f in writable}
    patch = {f.name: _patch_schema(f, values[f.name]) for f in writable}
    operators = {f.name: _operators_of(f) for f in writable}
    defaulted = {f.name for f in writable if f.has_default} | {schema.owner_field}
    required = [f.name for f in writable if f.required and f.name not in defaulted]
    return {
        "": _object(f"An object of {schema.name}.", {"id": ID_SCHEMA, **object_}, ["id"]),
        ".new": _closed("An object to be put or created.", {"id": ID_SCHEMA, **new}, required),
        ".patch": _closed("Fields with their new values; null removes one.", patch),
        ".operators": _closed("Fields, each with one operator.", operators),
    }


def _object(
    description: str, properties: dict[str, Any], required: list[str] | None = None
) -> dict[str, Any]:
    described = {"type": "object", "description": description, "properties": properties}
    return {**described, "required": required} if required else described


def _closed(
    description: str, properties: dict[str, Any], required: list[str] | None = None
) -> dict[str, Any]:
    return {**_object(description, properties, required), "additionalProperties": False}


def _field_schema(field: Field, value: dict[str, Any]) -> dict[str, Any]:
    described = value if field.required else _nullable(value)
    default = field.default
    if field.updated:
        return _with_note({**described, "readOnly": True}, "The time of the last write.")
    if isinstance(default, Generated):
        generated = "a new UUID" if default is Generated.UUID else "the time of the request"
        return _with_note(described, f"Unless given, {generated}.")
    if isinstance(default, MissingType):
        return described
    encode = encoder(field)
    json_default = default if encode is None or default is None else encode(default)
    return {**described, "default": json_default}


def _patch_schema(field: Field, value: dict[str, Any]) -> dict[str, Any]:
    if field.type is FieldType.MAP:  # it is merged: null removes a key
        value = {**value, "additionalProperties": _nullable(value["additionalProperties"])}
    return value if field.required else _nullable(value)


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    described = {**schema, "type": [schema["type"], "null"]}
    return {**described, "enum": [*schema["enum"], None]} if "enum" in schema else described


def _with_note(schema: dict[str, Any], note: str) -> dict[str, Any]:
    return {**schema, "description": " ".join(filter(None, (schema.get("description"), note)))}


def _value_schema(field: Field, described_classes: Container[str]) -> dict[str, Any]:
    """Describe the values of a field, null excepted, with its constraints."""
    described = {**_type_schema(field.type, field.items), **dict(_constraints(field))}
    for note in _notes(field, described_classes):
        described = _with_note(described, note)
    return described


def _type_schema(type_: FieldType, items: FieldType | None) -> dict[str, Any]:
    if items is None:
        return _SCALARS[type_]
    if type_ is FieldType.MAP:
        return {"type": "object", "additionalProperties": _SCALARS[items]}
    return {"type": "array", "items": _SCALARS[items]}


def _constraints(field: Field) -> Iterator[tuple[str, Any]]:
    min_keyword, max_keyword = _LENGTHS.get(field.type, ("minLength", "maxLength"))
    for keyword, length in ((min_keyword, field.min_length), (max_keyword, field.max_length)):
        if length is not None:
            yield keyword, _base64_length(length) if field.type is FieldType.BINARY else length
    if field.type is FieldType.SET:
        yield "description", "Sorted, without duplicates."
    if field.type is not FieldType.DECIMAL:
        bounds = {"minimum": field.minimum, "maximum": field.maximum}
        yield from ((name, bound) for name, bound in bounds.items() if bound is not None)
    if field.enum is not None:
        yield "enum", [*field.enum]
    if field.pattern is not None and _SHARED_PATTERN.fullmatch(field.pattern):
        yield "pattern", field.pattern


_LENGTHS: Final = {
    FieldType.LIST: ("minItems", "maxItems"),
    FieldType.SET: ("minItems", "maxItems"),
    FieldType.MAP: ("minProperties", "maxProperties"),
}


def _base64_length(size: int) -> int:
    """Return the length of `size` bytes in base64 (RFC 4648, section 4)."""
    return -(-size // 3) * 4


def _notes(field: Field, described_classes: Container[str]) -> Iterator[str]:
    if field.type is FieldType.REFERENCE:
        yield (
            f"The id of an object of {field.to}."
            if field.to in described_classes
            else "The id of an object."
        )
    if field.on_delete is not None and field.type in ARRAYS:
        yield f"Each has to exist. {_ON_DELETE_OF_ELEMENTS[field.on_delete]}"
    elif field.on_delete is not None:
        yield f"It has to exist. {_ON_DELETE[field.on_delete]}"
    if field.type is FieldType.DECIMAL:
        encode = encoder(field)
        assert encode is not None
        for bound, word in ((field.minimum, "least"), (field.maximum, "most")):
            if bound is not None:
                yield f"At {word} {encode(bound)}."
    if field.pattern is not None and not _SHARED_PATTERN.fullmatch(field.pattern):
        yield f"Has a match of the pattern {field.pattern} of RE2."


def _operators_of(field: Field) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{_operators_name(field.type, field.items)}"}


def _operators_name(type_: FieldType, items: FieldType | None) -> str:
    return f"Operators.{type_}" + (f".{items}" if items else "")


def operator_schemas(schema: ClassSchema) -> dict[str, Any]:
    """Describe the operators that the fields of a class take, by the names of components."""
    kinds = {(field.type, field.items) for field in throttled(schema.fields.values())}
    return {_operators_name(*kind): _operators(*kind) for kind in kinds}


def _operators(type_: FieldType, items: FieldType | None) -> dict[str, Any]:
    value, item = _type_schema(type_, items), _SCALARS[items or type_]
    flags = dict.fromkeys((Operator.UNSET, Operator.POP, Operator.SHIFT, Operator.NOW), _TRUE)
    element_arguments = dict.fromkeys(
        (Operator.PUSH, Operator.PUSH_FRONT, Operator.ADD_TO_SET), item
    )
    removed_schema = _KEY if type_ is FieldType.MAP else item
    arguments = {
        **flags,
        **element_arguments,
        Operator.SET: _nullable(value),
        Operator.REMOVE: removed_schema,
    }
    operators = [operator for operator in Operator if type_ in APPLICABLE[operator]]
    return one_of({operator.value: arguments.get(operator, value) for operator in operators})


def conditions(schema: ClassSchema) -> dict[str, Any]:
    """Describe the parameters that are conditions on indexed fields; others need a scan."""
    return {
        "name": "conditions",
        "in": "query",
        "style": "form",
        "explode": True,
        "description": "Conditions, all of which hold: docs/queries.md. Paths of other fields need"
        " allow_scan.",
        "schema": {"type": "object", "properties": dict(_conditions(schema))},
    }


def _conditions(schema: ClassSchema) -> Iterator[tuple[str, dict[str, Any]]]:
    leading_fields = {index.fields[0] for index in schema.indexes}
    for field in throttled(schema.fields.values()):
        if field.has_element_index and field.items is not None:
            yield f"{field.name}.contains", _SCALARS[field.items]
        if not (field.has_ordered_index or field.name in leading_fields):
            continue
        name, value = field.name, _SCALARS[field.type]
        yield (f"{name}.eq" if name in _PARAMETERS else name), value
        yield from ((f"{name}.{operator}", value) for operator in _RANGE_OPERATORS)
        list_schema = {"type": "string", "description": "Values with commas between them."}
        yield from ((f"{name}.{operator}", list_schema) for operator in _LIST_OPERATORS)
