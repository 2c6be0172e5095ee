"""Parsing queries from readable parameters: ``country=DE&year.ge=1970&order=-hits``.

They are converted to the JSON form of the query, so that one parser reads both. All conditions must
hold. A parameter is a path, followed by ``.operator`` unless that is equality. Elements of ``in``
and ``between`` are separated by commas; an element with a comma is percent-encoded once more.
Constants are written as JSON writes the type of the field, without quotation marks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import unquote

import orjson

from mediator.base.errors import Invalid, Location
from mediator.base.suggestions import did_you_mean
from mediator.query.filter_parser import OPERATORS
from mediator.query.parser import ParsedQuery, parse_query_document
from mediator.query.paths import NameScope
from mediator.schema.errors import InvalidValue
from mediator.schema.tree import Schema
from mediator.schema.types import FieldType

__all__ = ["RESERVED", "parse_flag", "parse_parameters", "wrong_parameter"]

RESERVED: Final = frozenset(
    {
        *("filter", "order", "limit", "after", "fields", "join", "aggregate"),
        *("count", "allow_scan", "explain"),
    }
)
"""Parameters that are not conditions; a field of such a name is written with ``.eq``."""

_JSON: Final = frozenset({"join", "aggregate"})
_LISTS: Final = frozenset({"in", "between"})
_TESTS: Final = frozenset(name for name, length in OPERATORS.items() if length) | {"exists"}
_BOOLEANS: Final = {"true": True, "false": False}
_NUMBER: Final = re.compile(r"-?[0-9]{1,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,4})?", re.ASCII)
_CONDITION: Final = re.compile(r"/filter/and/([0-9]+)")


def parse_parameters(
    pairs: Sequence[tuple[str, str]], schema: Schema, class_name: str, *, max_limit: int
) -> ParsedQuery:
    """Parse a query from decoded parameters, in their order; `Invalid` names wrong ones."""
    document: dict[str, Any] = {}
    scope = NameScope(schema.classes[class_name])
    names: list[str] = []
    conditions: list[Any] = []
    for name, text in pairs:
        if name not in RESERVED:
            conditions.append(_condition(scope, name, text))
            names.append(name)
        elif name in document or name in names:
            raise wrong_parameter(name, "is given more than once")
        elif name == "filter":
            conditions.append(_json(name, text))
            names.append(name)
        else:
            document[name] = _SETTINGS[name](name, text)
    if conditions:
        document["filter"] = {"and": conditions}
    try:
        return parse_query_document(document, schema, class_name, max_limit=max_limit)
    except Invalid as error:
        renamed = [_in_parameters(location, names) for location in error.locations]
        locations = [_with_hint(at, scope) if at.pointer in names else at for at in renamed]
        first = locations[0]
        raise Invalid(f"{first.pointer} {first.detail}", locations=locations) from None


def _condition(scope: NameScope, name: str, text: str) -> dict[str, Any]:
    path, operator = _split(name)
    if operator == "exists":
        exists = {"exists": path}
        return exists if parse_flag(name, text) else {"not": exists}
    convert = _converter(scope, path, operator)
    if operator not in _LISTS:
        return {operator: [path, convert(text)]}
    elements = [
        convert(unquote(element) if "%" in element else element) for element in text.split(",")
    ]
    return {operator: [path, *elements] if operator == "between" else [path, elements]}


def _split(name: str) -> tuple[str, str]:
    """Split a name into path and operator, which is its last segment, or else ``eq``."""
    path, _, last = name.rpartition(".")
    return (path, last) if path and last in _TESTS else (name, "eq")


def _converter(scope: NameScope, path: str, operator: str) -> Callable[[str], Any]:
    """Return the converter from a text to a JSON constant, which the parser then checks."""
    try:
        target = scope.find(path)
    except InvalidValue:
        return str
    type_ = target.type
    if operator == "contains" and type_ is not None and target.path[0] in scope.schema.fields:
        type_ = scope.schema.fields[target.path[0]].items or type_
    if operator == "like" or type_ is None:
        return str if operator == "like" else _guess
    return _CONVERTERS.get(type_, str)


def _number(text: str) -> Any:
    with suppress(orjson.JSONDecodeError):  # 007 is not JSON
        return orjson.loads(text) if _NUMBER.fullmatch(text) else text
    return text


def _boolean(text: str) -> Any:
    return _BOOLEANS.get(text, text)


def _guess(text: str) -> Any:
    """Convert a constant within a document: to a number or a boolean if it looks like one."""
    return _BOOLEANS[text] if text in _BOOLEANS else _number(text)


_CONVERTERS: Final = {
    FieldType.INTEGER: _number,
    FieldType.FLOAT: _number,
    FieldType.BOOLEAN: _boolean,
}


def _with_hint(location: Location, scope: NameScope) -> Location:
    """Suggest an operator or a reserved parameter if no field was suggested."""
    if "did you mean" in location.detail:
        return location
    return Location(location.pointer, location.detail + _hint(scope, location.pointer))


def _hint(scope: NameScope, name: str) -> str:
    """Return a hint for a parameter without a field: an operator or a reserved parameter."""
    path, _, last = name.rpartition(".")
    if name in RESERVED or _is_path(scope, _split(name)[0]):
        return ""
    return did_you_mean(last, _TESTS) if _is_path(scope, path) else did_you_mean(name, RESERVED)


def _is_path(scope: NameScope, path: str) -> bool:
    try:
        scope.find(path)
    except InvalidValue:
        return False
    return True


def _json(name: str, text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        raise wrong_parameter(name, "must be JSON") from None


def _levels(_: str, text: str) -> list[list[str]]:
    return [
        [level.removeprefix("-"), "desc" if level.startswith("-") else "asc"]
        for level in text.split(",")
    ]


def parse_flag(name: str, text: str) -> bool:
    if text not in _BOOLEANS:
        raise wrong_parameter(name, "must be true or false")
    return _BOOLEANS[text]


_SETTINGS: Final[dict[str, Callable[[str, str], Any]]] = {
    "order": _levels,
    "limit": lambda _, text: _number(text),
    "after": lambda _, text: text,
    "fields": lambda _, text: text.split(","),
    "join": _json,
    "aggregate": _json,
    "count": lambda _, text: text,
    "allow_scan": parse_flag,
    "explain": parse_flag,
}


def _in_parameters(location: Location, names: Sequence[str]) -> Location:
    """Convert a location in the JSON form to one in the parameters."""
    match = _CONDITION.match(location.pointer)
    if match is not None and int(match[1]) < len(names):
        name = names[int(match[1])]
        rest = location.pointer[match.end() :] if name == "filter" else ""
        return Location(name + rest, location.detail)
    name, _, rest = location.pointer.removeprefix("/").partition("/")
    within = f"/{rest}" if rest and name in _JSON else ""
    return Location(f"{name}{within}" if name else "query", location.detail)


def wrong_parameter(name: str, detail: str) -> Invalid:
    return Invalid(f"{name} {detail}", locations=[Location(name, detail)])
