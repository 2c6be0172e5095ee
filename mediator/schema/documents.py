"""Documents: free JSON, merged (RFC 7396), and in a form that every store returns unchanged.

JSON has one kind of number (RFC 8259 section 6), and PostgreSQL's JSONB likewise does not
distinguish 1.0 from 1, while BSON does. So an integral number within 64 bits is an integer in
either notation, and -0.0 is 0. Other numbers are finite doubles.
"""

from __future__ import annotations

from itertools import chain
from math import isfinite
from typing import Any, Final

from mediator.base.errors import Invalid, Location
from mediator.schema.errors import InvalidValue, locations_below, token
from mediator.schema.limits import DOCUMENT_DEPTH, INTEGER_MAX, INTEGER_MIN, MAX_ERRORS
from mediator.schema.scalars import check_text, integer

__all__ = ["check_storable", "document", "merge_patch"]


def document(raw: Any) -> dict[str, Any]:
    """Decode a JSON object.

    Returns:
        A copy that shares nothing mutable with `raw`, in canonical form.

    Raises:
        InvalidValue: It is not an object, is deeper than `DOCUMENT_DEPTH`, or holds something that
            not every store can keep: integers beyond 64 bits, NUL, lone surrogates, empty keys.
    """
    if type(raw) is not dict:
        raise InvalidValue("must be an object")
    return _object(raw, 1)


def _json(raw: Any, depth: int) -> Any:
    kind = type(raw)
    if kind is str:
        check_text(raw)
        return raw
    if kind is int:
        return integer(raw)
    if kind is float:
        return _number(raw)
    if kind is dict:
        return _object(raw, depth + 1)
    if kind is list:
        return _array(raw, depth + 1)
    if raw is None or kind is bool:
        return raw
    raise InvalidValue("must be JSON")


def _number(raw: float) -> int | float:
    if not isfinite(raw):
        raise InvalidValue("must be a finite number")
    if raw.is_integer() and INTEGER_MIN <= raw <= INTEGER_MAX:
        return int(raw)
    return raw


def _object(raw: dict[str, Any], depth: int) -> dict[str, Any]:
    _check_depth(depth)
    result: dict[str, Any] = {}
    locations: list[Location] = []
    for key, member in raw.items():
        # Caught per member: a second pass at every level would take 2^depth steps.
        try:
            result[_key(key)] = _json(member, depth)
        except InvalidValue as error:
            _add_locations(locations, token(str(key)), error)
    if locations:
        raise InvalidValue(locations=locations)
    return result


def _array(raw: list[Any], depth: int) -> list[Any]:
    _check_depth(depth)
    result: list[Any] = []
    locations: list[Location] = []
    for index, element in enumerate(raw):
        try:
            result.append(_json(element, depth))
        except InvalidValue as error:
            _add_locations(locations, f"/{index}", error)
    if locations:
        raise InvalidValue(locations=locations)
    return result


def _key(key: Any) -> str:
    if type(key) is not str or not key:
        raise InvalidValue("must have a name that is not empty")
    check_text(key)
    return key


def _check_depth(depth: int) -> None:
    if depth > DOCUMENT_DEPTH:
        raise InvalidValue(f"must not be nested deeper than {DOCUMENT_DEPTH}")


def _add_locations(locations: list[Location], pointer: str, error: InvalidValue) -> None:
    if len(locations) < MAX_ERRORS:
        locations += locations_below(pointer, error)


def check_storable(value: Any, depth: int) -> None:
    """Check JSON that the catalogue is to store unchanged.

    Args:
        value: Parsed JSON.
        depth: Maximum nesting depth of objects and arrays.

    Raises:
        InvalidValue: It is nested deeper, or holds text that cannot be stored.
    """
    if isinstance(value, str):
        check_text(value)
    elif isinstance(value, dict | list):
        if depth == 0:
            raise InvalidValue("is nested too deeply")
        for member in chain(value, value.values() if isinstance(value, dict) else ()):
            check_storable(member, depth - 1)


DEPTH: Final = 64


def merge_patch(present: Any, patch: Any, depth: int = 0) -> Any:
    """Apply a patch (RFC 7396, 2), sharing unchanged members; `Invalid` beyond `DEPTH`."""
    if depth > DEPTH:
        raise Invalid(f"The patch is nested deeper than {DEPTH}.")
    if type(patch) is not dict:
        return patch
    result: dict[str, Any] = dict(present) if type(present) is dict else {}
    for name, member in patch.items():
        if member is None:
            result.pop(name, None)
        else:
            result[name] = merge_patch(result.get(name), member, depth + 1)
    return result
