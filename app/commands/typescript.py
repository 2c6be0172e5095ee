"""The classes of a database as TypeScript types, generated from its OpenAPI document.

Exported names begin with a capital letter, internal names with an underscore, so that no class can
collide with the latter.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import orjson

__all__ = ["declarations"]

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_COMPONENT: Final = "#/components/schemas/"
_OPERATORS: Final = "Operators."
_HEAD: Final = """\
// Made by `portolan schema typescript {database}`: do not edit.
// For the client of the database: new Client<{type}>(url, "{database}").

/** An object with exactly one of some members. */
type _One<T> = {{
  [K in keyof T]: {{ [P in K]: T[P] }} & {{ [P in Exclude<keyof T, K>]?: never }};
}}[keyof T];
"""
_SCALARS: Final = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
}
_NOTES: Final = {
    "int64": "64 bits; JavaScript's JSON keeps 53 of them.",
    "decimal": "A decimal number.",
    "date-time": "RFC 3339, in UTC.",
}
_BOUNDS: Final = {
    "minimum": "At least {}.",
    "maximum": "At most {}.",
    "minLength": "At least {} characters.",
    "maxLength": "At most {} characters.",
    "maxItems": "At most {} elements.",
    "maxProperties": "At most {} keys.",
}
_UNBOUNDED: Final = frozenset({"decimal"})
"""Formats whose length is no constraint of the field."""


def declarations(database: str, document: Mapping[str, Any]) -> str:
    """Return a module of types: for each class an object, a new object, a patch and operators.

    Args:
        database: Its name, which names the type of all classes.
        document: The OpenAPI document of the database.
    """
    schemas = document["components"]["schemas"]
    names = _Names(database)
    classes = {tag["name"]: names.of(tag["name"]) for tag in document["tags"]}
    sections = [_HEAD.format(database=database, type=names.database)]
    sections += [
        f"type {_operators_name(kind)} = _One<{_arguments(schemas[kind])}>;\n"
        for kind in sorted(schemas)
        if kind.startswith(_OPERATORS)
    ]
    for class_name, types in classes.items():
        sections += _class_section(class_name, types, schemas)
    sections.append(_database_section(names.database, classes))
    return "\n".join(sections)


class _Names:
    """Unique names of types."""

    def __init__(self, database: str) -> None:
        self._used: set[str] = set()
        self.database = self._unique(_camel(database))

    def of(self, class_name: str) -> Mapping[str, str]:
        """Return the names of the types of a class, by the member of the client's `ClassTypes`."""
        name = _camel(class_name)
        by_kind = {
            "object": name,
            "new": f"New{name}",
            "patch": f"{name}Patch",
            "operators": f"{name}Operators",
        }
        return {kind: self._unique(candidate) for kind, candidate in by_kind.items()}

    def _unique(self, name: str) -> str:
        while name in self._used:
            name += "_"
        self._used.add(name)
        return name


def _camel(name: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in name.split("_"))


def _class_section(
    class_name: str, types: Mapping[str, str], schemas: Mapping[str, Any]
) -> Iterator[str]:
    for kind, type_ in types.items():
        schema = schemas[class_name if kind == "object" else f"{class_name}.{kind}"]
        required = schema.get("required", [])
        if kind == "object":  # the members of a whole object
            required = [
                name for name, member in schema["properties"].items() if _is_required(member)
            ]
        comment = _comment(schema["description"], "")
        yield f"{comment}export interface {type_} {_members(schema, required)}\n"


def _is_required(schema: Mapping[str, Any]) -> bool:
    return isinstance(schema["type"], str)


def _database_section(type_: str, classes: Mapping[str, Mapping[str, str]]) -> str:
    lines = [f"export interface {type_} {{"]
    for class_name, types in classes.items():
        members = "; ".join(f"{kind}: {name}" for kind, name in types.items())
        lines.append(f"  {_key(class_name)}: {{ {members} }};")
    return "\n".join([*lines, "}"]) + "\n"


def _members(schema: Mapping[str, Any], required: Collection[str]) -> str:
    lines = ["{"]
    for name, member in schema["properties"].items():
        modifier = "readonly " if member.get("readOnly") else ""
        key = f"{modifier}{_key(name)}{'' if name in required else '?'}"
        lines.append(f"{_comment(' '.join(_notes(member)), '  ')}  {key}: {_type(member)};")
    return "\n".join([*lines, "}"])


def _arguments(schema: Mapping[str, Any]) -> str:
    members = [f"{_key(name)}: {_type(member)}" for name, member in schema["properties"].items()]
    return f"{{ {'; '.join(members)} }}"


def _key(name: str) -> str:
    return name if _NAME.fullmatch(name) else _literal(name)


def _literal(value: Any) -> str:
    return orjson.dumps(value).decode()


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return _operators_name(schema["$ref"].removeprefix(_COMPONENT))
    if "enum" in schema:
        return " | ".join(map(_literal, schema["enum"]))
    if "const" in schema:
        return _literal(schema["const"])
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return " | ".join(_single_type(type_, schema) for type_ in types)


def _single_type(type_: str, schema: Mapping[str, Any]) -> str:
    if type_ == "array":
        item = _type(schema["items"])
        return f"({item})[]" if " " in item else f"{item}[]"
    if type_ == "object":
        member = schema.get("additionalProperties")
        return f"{{ [key: string]: {_type(member) if member else 'unknown'} }}"
    return _SCALARS[type_]


def _operators_name(component: str) -> str:
    return "_" + _camel(component.removeprefix(_OPERATORS).replace(".", "_")) + "Operators"


def _notes(schema: Mapping[str, Any]) -> Iterator[str]:
    format_ = schema.get("format", "")
    if "description" in schema:
        yield schema["description"]
    if format_ in _NOTES:
        yield _NOTES[format_]
    if "contentEncoding" in schema:
        yield "Base64."
    if "default" in schema:
        yield f"{_literal(schema['default'])} unless given."
    if format_ in _UNBOUNDED or "not" in schema:  # a decimal, and an id
        return
    yield from (text.format(schema[name]) for name, text in _BOUNDS.items() if name in schema)
    if "pattern" in schema:
        yield f"Has a match of {schema['pattern']}."


def _comment(text: str, indent: str) -> str:
    """Format a comment as one line; escape a sequence that would end it."""
    if not text:
        return ""
    line = " ".join(text.split()).replace("*/", "*\\/")
    return f"{indent}/** {line} */\n"
