"""Constraints of fields: conditions on a value beyond its type.

Decoders check the values that a request states. The store checks the result of an operator against
`minimum` and `maximum`, in the step that applies it (`mediator.model.apply`), so an `inc` below
zero is refused in one call. Constraints bind writes only, not the constants of queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

from mediator.base.linear_patterns import compile_pattern
from mediator.schema.errors import InvalidValue
from mediator.schema.scalars import SCALAR_ENCODERS, Decoder
from mediator.schema.tree import Field
from mediator.schema.types import FieldType

__all__ = [
    "ABOVE_MAXIMUM",
    "BELOW_MINIMUM",
    "Check",
    "beyond",
    "checks_of",
    "searcher",
    "unconstrained",
    "with_constraints",
]

BELOW_MINIMUM: Final = "below_minimum"
ABOVE_MAXIMUM: Final = "above_maximum"

_MAX_PATTERN_BYTES: Final = 2**20
"""Maximum bytes of a compiled pattern, including RE2's cache of states."""

_MAX_LISTED: Final = 200
"""Characters of an enumeration that an error message lists."""

Check: TypeAlias = Callable[[Any], bool]
"""Whether a value, which is neither missing nor null, meets a constraint."""


def unconstrained(field: Field) -> Field:
    """Return a field whose values only need to be of its type."""
    return replace(
        field,
        max_length=None,
        min_length=None,
        minimum=None,
        maximum=None,
        enum=None,
        pattern=None,
        updated=False,
    )


def beyond(field: Field, value: Any) -> str | None:
    """Return why a number is refused (`OperatorFailure.reason`); None: it is within bounds."""
    if field.minimum is not None and value < field.minimum:
        return BELOW_MINIMUM
    if field.maximum is not None and value > field.maximum:
        return ABOVE_MAXIMUM
    return None


def with_constraints(field: Field, decode: Decoder) -> Decoder:
    """Return a decoder that enforces the constraints; the same one without constraints."""
    checks = tuple((holds, demand) for _, holds, demand in checks_of(field))
    if not checks:
        return decode

    def decode_checked(raw: Any) -> Any:
        value = decode(raw)
        for holds, demand in checks:
            if not holds(value):
                raise InvalidValue(demand)
        return value

    return decode_checked


def checks_of(field: Field) -> Iterator[tuple[str, Check, str]]:
    """Yield the constraints that decoders of a type do not check: name, test and error message."""
    low, high, min_length = field.minimum, field.maximum, field.min_length
    if low is not None:
        yield "minimum", lambda value: value >= low, f"must be at least {_text(field, low)}"
    if high is not None:
        yield "maximum", lambda value: value <= high, f"must be at most {_text(field, high)}"
    if min_length is not None:
        unit = "bytes" if field.type is FieldType.BINARY else "characters"
        demand = f"must be at least {min_length} {unit} long"
        yield "min_length", lambda value: len(value) >= min_length, demand
    if field.enum is not None:
        demand = f"must be one of {_list_members(field.enum)}"
        yield "enum", frozenset(field.enum).__contains__, demand
    if field.pattern is not None:
        yield "pattern", searcher(field.pattern), f"must match the pattern {field.pattern}"


def _list_members(members: Sequence[str]) -> str:
    """List the members of an enumeration, at the length of an error message."""
    text = ", ".join(members)
    return text if len(text) <= _MAX_LISTED else f"{text[:_MAX_LISTED]}… ({len(members)} values)"


def _text(field: Field, bound: Any) -> str:
    encode = SCALAR_ENCODERS.get(field.type)
    return str(bound if encode is None else encode(bound))


def searcher(pattern: str) -> Check:
    """Return the test whether a text has a match of a regular expression.

    As in JSON Schema (2020-12, validation, 6.3.3) the expression is not anchored.

    Raises:
        ValueError: The expression is invalid, needs too much memory, or uses backreferences or
            lookaround, which RE2 does not have.
    """
    search = compile_pattern(pattern, _MAX_PATTERN_BYTES).search
    return lambda text: search(text.encode()) is not None
