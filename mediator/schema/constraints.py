"""Constraints of fields: what a value must be besides one of its type.

Decoders check the values that are given. What an operator computes is checked against `minimum` and
`maximum` by the store, in the step that applies it (`mediator.model.apply`), so an `inc` below
zero is refused in one call. Constraints bind writes: constants of queries are free of them.
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
    "constrained",
    "searcher",
    "unconstrained",
]

BELOW_MINIMUM: Final = "below_minimum"
ABOVE_MAXIMUM: Final = "above_maximum"

_MEMORY: Final = 2**20
"""Bytes that a compiled pattern may take, with what RE2 remembers of its states."""

_MOST_NAMED: Final = 200
"""Characters of an enumeration that an error message names."""

Check: TypeAlias = Callable[[Any], bool]
"""Whether a value, which is neither missing nor null, holds a constraint."""


def unconstrained(field: Field) -> Field:
    """Return a field whose values have to be of its type, and nothing else."""
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
    """Say why a number is refused (`OperatorFailure.reason`); None if it is within the bounds."""
    if field.minimum is not None and value < field.minimum:
        return BELOW_MINIMUM
    if field.maximum is not None and value > field.maximum:
        return ABOVE_MAXIMUM
    return None


def constrained(field: Field, decode: Decoder) -> Decoder:
    """Return a decoder that refuses what the constraints do; the same one if there are none."""
    checks = tuple((holds, demand) for _, holds, demand in checks_of(field))
    if not checks:
        return decode

    def checked(raw: Any) -> Any:
        value = decode(raw)
        for holds, demand in checks:
            if not holds(value):
                raise InvalidValue(demand)
        return value

    return checked


def checks_of(field: Field) -> Iterator[tuple[str, Check, str]]:
    """Yield the constraints that decoders of a type do not check: name, test, what is demanded."""
    low, high, shortest = field.minimum, field.maximum, field.min_length
    if low is not None:
        yield "minimum", lambda value: value >= low, f"must be at least {_text(field, low)}"
    if high is not None:
        yield "maximum", lambda value: value <= high, f"must be at most {_text(field, high)}"
    if shortest is not None:
        unit = "bytes" if field.type is FieldType.BINARY else "characters"
        demand = f"must be at least {shortest} {unit} long"
        yield "min_length", lambda value: len(value) >= shortest, demand
    if field.enum is not None:
        demand = f"must be one of {_listed(field.enum)}"
        yield "enum", frozenset(field.enum).__contains__, demand
    if field.pattern is not None:
        yield "pattern", searcher(field.pattern), f"must match the pattern {field.pattern}"


def _listed(members: Sequence[str]) -> str:
    """Name the members of an enumeration, in a length that an error message can have."""
    named = ", ".join(members)
    return named if len(named) <= _MOST_NAMED else f"{named[:_MOST_NAMED]}… ({len(members)} values)"


def _text(field: Field, bound: Any) -> str:
    encode = SCALAR_ENCODERS.get(field.type)
    return str(bound if encode is None else encode(bound))


def searcher(pattern: str) -> Check:
    """Return the test of whether a text has a match of a regular expression.

    As in JSON Schema (2020-12, validation, 6.3.3) the expression is not anchored.

    Raises:
        ValueError: The expression is none, needs too much memory, or what RE2 has not: references
            back, and looking around.
    """
    search = compile_pattern(pattern, _MEMORY).search
    return lambda text: search(text.encode()) is not None
