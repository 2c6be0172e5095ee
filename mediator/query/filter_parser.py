"""Parsing filters from JSON objects with one member, the operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from mediator.model.filters import (
    And,
    Between,
    Compare,
    Comparison,
    Contains,
    Exists,
    Filter,
    In,
    Like,
    Not,
    Or,
)
from mediator.model.patterns import Wildcard, tokens
from mediator.query.json_node import Node
from mediator.query.paths import NameScope, ResolvedPath, only_member, resolve_path
from mediator.schema.errors import InvalidValue, locations_below
from mediator.schema.types import FieldType

__all__ = [
    "MAX_CHARACTERS",
    "MAX_NODES",
    "MAX_VALUES",
    "MAX_WILDCARDS",
    "OPERATORS",
    "FilterParser",
]

MAX_NODES: Final = 250
MAX_DEPTH: Final = 32
MAX_VALUES: Final = 1_000
"""Values of all `in` of a filter."""

MAX_CHARACTERS: Final = 1_000
MAX_WILDCARDS: Final = 32
"""Limits of all patterns of `like` and texts of `contains` in one filter.

Servers search texts of any length for them, and cannot be interrupted meanwhile: in the worst case
PostgreSQL takes as many steps as the product of the lengths of pattern and text.
"""

_NOTHING: Final = And(())
_TEXTS: Final = frozenset({FieldType.STRING, FieldType.REFERENCE, None})


class FilterParser:
    """Parses one filter; after an error its result is discarded."""

    def __init__(self, scope: NameScope) -> None:
        self._scope = scope
        self._nodes = self._values = self._characters = self._wildcards = 0

    def read(self, node: Node) -> Filter | None:
        """Parse a filter; None if it is absent."""
        return self._filter(node, 1) if node.given else None

    def _filter(self, node: Node, depth: int) -> Filter:
        self._nodes += 1
        if depth > MAX_DEPTH or self._nodes > MAX_NODES:
            node.error(f"goes beyond {MAX_DEPTH} levels or {MAX_NODES} conditions")
            return _NOTHING
        operator = only_member(node, OPERATORS, "operator")
        if operator is None:
            return _NOTHING
        operand = node[operator]
        if operator in {"and", "or"}:
            operands = tuple(self._filter(o, depth + 1) for o in operand.elements(MAX_NODES))
            return And(operands) if operator == "and" else Or(operands)
        if operator == "not":
            return Not(self._filter(operand, depth + 1))
        if operator == "exists":
            target = resolve_path(operand, self._scope)
            return Exists(target.path) if target else _NOTHING
        return self._condition(operator, operand)

    def _condition(self, operator: str, operand: Node) -> Filter:
        count = OPERATORS[operator]
        elements = operand.elements(count, count)
        target = resolve_path(elements[0], self._scope) if elements else None
        if target is None:
            return _NOTHING
        condition = _READERS[operator](target, *elements[1:])
        self._weigh(condition, elements[1])
        return condition

    def _weigh(self, condition: Filter, constant: Node) -> None:
        """Add up the cost per object; report an error beyond the limits."""
        match condition:
            case In(_, values):
                self._values += len(values)
            case Like(_, pattern):
                self._characters += len(pattern)
                wildcards = sum(isinstance(t, Wildcard) for t in tokens(pattern))
                self._wildcards += max(wildcards, 1)
            case Contains(_, str() as text):
                self._characters += len(text)
        if self._values > MAX_VALUES:
            constant.error(f"gives the filter more than {MAX_VALUES} values of in")
        if self._characters > MAX_CHARACTERS or self._wildcards > MAX_WILDCARDS:
            constant.error(
                f"makes the filter search for more than {MAX_CHARACTERS} characters or"
                f" {MAX_WILDCARDS} wildcards"
            )


def _constant(node: Node, decode: Callable[[Any], Any], *, nullable: bool = False) -> Any:
    if node.value is None:
        if not nullable:
            node.error("cannot be null here")
        return None
    try:
        return decode(node.value)
    except InvalidValue as error:
        node.errors.extend(locations_below(node.pointer, error))
        return None


def _compare(comparison: Comparison, target: ResolvedPath, constant: Node) -> Filter:
    equality = comparison in {Comparison.EQ, Comparison.NE}
    if not (equality or target.is_scalar):
        constant.error(f"values of type {target.type} have no order")
    value = _constant(constant, target.decode, nullable=equality)
    return Compare(comparison, target.path, value)


def _between(target: ResolvedPath, low: Node, high: Node) -> Filter:
    if not target.is_scalar:
        low.error(f"values of type {target.type} have no order")
    return Between(target.path, _constant(low, target.decode), _constant(high, target.decode))


def _in(target: ResolvedPath, values: Node) -> Filter:
    constants = values.elements(MAX_VALUES)
    return In(target.path, tuple(_constant(c, target.decode, nullable=True) for c in constants))


def _like(target: ResolvedPath, pattern: Node) -> Filter:
    if target.type not in _TEXTS:
        pattern.error(f"values of type {target.type} are not texts")
    if not isinstance(pattern.value, str):
        pattern.error("must be a string")
        return _NOTHING
    try:
        tokens(pattern.value)
    except ValueError as error:
        pattern.error(str(error))
        return _NOTHING
    return Like(target.path, pattern.value)


def _contains(target: ResolvedPath, constant: Node) -> Filter:
    if target.item is None:
        constant.error(f"values of type {target.type} contain nothing")
        return _NOTHING
    return Contains(target.path, _constant(constant, target.item))


_READERS: Final[Mapping[str, Callable[..., Filter]]] = {
    **{comparison.value: partial(_compare, comparison) for comparison in Comparison},
    "between": _between,
    "in": _in,
    "like": _like,
    "contains": _contains,
}

OPERATORS: Final[Mapping[str, int]] = {
    **{comparison.value: 2 for comparison in Comparison},
    "between": 3,
    **dict.fromkeys(("in", "like", "contains"), 2),
    **dict.fromkeys(("and", "or", "not", "exists"), 0),
}
"""All operators, with the length of their array; 0 if it is not fixed, or they take none."""
