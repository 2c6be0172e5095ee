"""A schema as text that people edit: without its defaults, and the line of each mistake."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import Any, Final

import orjson

from app.admin.pages.forms import indented
from mediator.schema.parse import parse_schema
from mediator.schema.render import schema_document

__all__ = ["lines_of", "schema_text"]

_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:\n]|[^\s"{}\[\],:]+')

Members = dict[str, Any]


def schema_text(document: Mapping[str, Any]) -> str:
    """Format a complete schema without its defaults."""
    return indented(_strip_defaults(document))


def _strip_defaults(document: Mapping[str, Any]) -> Members:
    database_defaults, class_defaults, field_defaults = _defaults()
    classes = {
        name: {
            **_strip(class_, class_defaults),
            "fields": {
                field_name: _strip(field, field_defaults)
                for field_name, field in class_["fields"].items()
            },
        }
        for name, class_ in document["classes"].items()
    }
    return {**_strip(document, database_defaults), "classes": classes}


@cache
def _defaults() -> tuple[Members, Members, Members]:
    """Return the default members of a database, a class and a field."""
    minimal = {"classes": {"c": {"fields": {"f": {"type": "string"}}}}}
    database = schema_document(parse_schema("d", minimal))
    class_ = database["classes"].pop("c")
    field = class_["fields"].pop("f")
    del field["type"]
    return database, class_, field


def _strip(members: Mapping[str, Any], defaults: Mapping[str, Any]) -> Members:
    stated = {}
    for name, value in members.items():
        default = defaults.get(name, ...)
        if name in ("classes", "fields") or value == default:
            continue
        nested = isinstance(value, dict) and isinstance(default, dict) and value
        stated[name] = _strip(value, default) if nested else value
    return stated


def lines_of(text: str, pointers: Collection[str]) -> dict[str, int]:
    """Return the line of each JSON pointer in a JSON text, counted from 1.

    A pointer to nothing gets the line of its nearest ancestor.
    """
    ancestors = {ancestor for pointer in pointers for ancestor in _ancestors(pointer)}
    lines = {"": 1, **{pointer: line for pointer, line in _walk(text) if pointer in ancestors}}
    return {
        pointer: next(lines[ancestor] for ancestor in _ancestors(pointer) if ancestor in lines)
        for pointer in pointers
    }


def _ancestors(pointer: str) -> Iterator[str]:
    while pointer:
        yield pointer
        pointer = pointer.rpartition("/")[0]
    yield ""


def _walk(text: str) -> Iterator[tuple[str, int]]:
    """Yield the pointer and the line of each member and element of a JSON text."""
    line, path = 1, list[str | int | None]()  # None: the name of a member follows
    for match in _TOKEN.finditer(text):
        symbol = match[0]
        if symbol == "\n":
            line += 1
        elif symbol in "}]":
            path.pop()
        elif symbol == ",":
            last = path[-1]
            path[-1] = last + 1 if isinstance(last, int) else None
        elif symbol != ":":
            if path and path[-1] is None:
                path[-1] = orjson.loads(symbol)
                yield _pointer(path), line
                continue
            if path and isinstance(path[-1], int):
                yield _pointer(path), line
            if symbol in "{[":
                path.append(None if symbol == "{" else 0)


def _pointer(path: list[str | int | None]) -> str:
    return "".join("/" + str(name).replace("~", "~0").replace("/", "~1") for name in path)
