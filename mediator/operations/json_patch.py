"""JSON Patch (RFC 6902), applied by a library, with bounded cost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Final, TypeAlias

import orjson
from jsonpatch import (
    JsonPatch,
    JsonPatchException,
    JsonPatchTestFailed,
    JsonPointer,
    JsonPointerException,
)

from mediator.base.errors import Conflict, Location
from mediator.schema.errors import InvalidValue, invalid, locations_below
from mediator.schema.limits import DOCUMENT_DEPTH

__all__ = ["COPY_BUDGET", "OPERATIONS_MAX", "POINTER_TOKENS", "Compute", "parse_json_patch"]

Compute: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
"""From an object's JSON to its new JSON; changes neither its argument nor itself."""

OPERATIONS_MAX: Final = 1000

POINTER_TOKENS: Final = DOCUMENT_DEPTH + 2
"""Tokens of a pointer: a field, an item of it, and a location in a document there."""

COPY_BUDGET: Final = 2**20
"""Limit of what one patch copies in all, in values, characters and keys.

Each copy can double the object, so a thousand copies would exhaust any memory.
"""

_MEMBERS = {
    "add": ("path", "value"),
    "remove": ("path",),
    "replace": ("path", "value"),
    "move": ("path", "from"),
    "copy": ("path", "from"),
    "test": ("path", "value"),
}


@dataclass(frozen=True, slots=True)
class _PatchStep:
    """One operation; `copied` points to the source of a `copy`, else None."""

    patch: JsonPatch
    copied: JsonPointer | None


def parse_json_patch(body: Any, pointer: str = "") -> Compute:
    """Parse a JSON Patch of an object.

    Returns:
        A function from the object's JSON to its new JSON, still to be decoded. It raises
        `Conflict` if a `test` fails, and `Invalid` if an operation does not apply; both with the
        location of the operation.

    Raises:
        Invalid: With the location of every error detectable without the object.
    """
    if type(body) is not list:
        raise invalid([Location(pointer, "must be an array of operations")])
    if len(body) > OPERATIONS_MAX:
        raise invalid([Location(pointer, f"must have at most {OPERATIONS_MAX} operations")])
    steps: list[_PatchStep] = []
    locations: list[Location] = []
    for index, operation in enumerate(body):
        try:
            steps.append(_step(operation))
        except InvalidValue as error:
            locations += locations_below(f"{pointer}/{index}", error)
    if locations:
        raise invalid(locations)
    return partial(_apply, steps, pointer)


def _step(operation: Any) -> _PatchStep:
    if type(operation) is not dict:
        raise InvalidValue("must be an object")
    op = operation.get("op")
    if type(op) is not str or op not in _MEMBERS:
        raise InvalidValue(locations=[Location("/op", f"must be one of {', '.join(_MEMBERS)}")])
    for name in _MEMBERS[op]:
        if name not in operation:
            raise InvalidValue(locations=[Location(f"/{name}", "is required")])
    pointers = {name: _pointer(name, operation[name]) for name in _MEMBERS[op] if name != "value"}
    try:
        _weigh(operation.get("value"), inf)
    except InvalidValue as error:
        raise InvalidValue(locations=locations_below("/value", error)) from None
    return _PatchStep(JsonPatch([operation]), pointers["from"] if op == "copy" else None)


def _pointer(name: str, raw: Any) -> JsonPointer:
    if type(raw) is str and raw.count("/") <= POINTER_TOKENS:
        with suppress(JsonPointerException):
            return JsonPointer(raw)
    detail = f"must be a JSON pointer of at most {POINTER_TOKENS} tokens"
    raise InvalidValue(locations=[Location(f"/{name}", detail)])


def _apply(steps: list[_PatchStep], pointer: str, present: dict[str, Any]) -> dict[str, Any]:
    # A copy, which the library may change in place.
    result: Any = orjson.loads(orjson.dumps(present))
    budget: float = COPY_BUDGET
    for index, step in enumerate(steps):
        at = f"{pointer}/{index}"
        try:
            if step.copied is not None:
                budget -= _weigh(step.copied.resolve(result), budget)
            result = step.patch.apply(result, in_place=True)
        except JsonPatchTestFailed:
            detail = "is not as the test expects"
            locations = [Location(f"{at}/path", detail)]
            raise Conflict(f"{at}/path {detail}", locations=locations) from None
        except InvalidValue as error:
            raise invalid(locations_below(f"{at}/from", error)) from None
        # Moves may nest an object deeper than Python recurses.
        except (JsonPatchException, JsonPointerException, RecursionError):
            detail = "points to nothing that the operation can be applied to"
            raise invalid([Location(f"{at}/path", detail)]) from None
    if type(result) is not dict:
        raise invalid([Location(pointer, "must leave an object")])
    return result


def _weigh(value: Any, budget: float) -> int:
    """Count values, keys and characters; raise if too many or nested too deep."""
    weight = 0
    pending = [(value, 0)]
    while pending:
        current, depth = pending.pop()
        weight += 1
        if type(current) is str:
            weight += len(current)
        elif type(current) is dict:
            weight += sum(map(len, current))
            pending += [(member, depth + 1) for member in current.values()]
        elif type(current) is list:
            pending += [(element, depth + 1) for element in current]
        if depth > POINTER_TOKENS:
            raise InvalidValue(f"must not be nested deeper than {POINTER_TOKENS}")
        if weight > budget:
            raise InvalidValue(
                f"must not copy more than {COPY_BUDGET} values and characters in all"
            )
    return weight
