"""Reading filters: each is an object with one member, the operator."""

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
from mediator.query.paths import Scope, Target, only_member, target_at
from mediator.schema.errors import InvalidValue, locations_below
from mediator.schema.json_node import Node
from mediator.schema.types import FieldType

__all__ = [
    "MOST_CHARACTERS",
    "MOST_NODES",
    "MOST_VALUES",
    "MOST_WILDCARDS",
    "OPERATORS",
    "FilterParser",
]

MOST_NODES: Final = 250
MOST_DEPTH: Final = 32
MOST_VALUES: Final = 1_000
"""Values of all `in` of a filter together."""

MOST_CHARACTERS: Final = 1_000
MOST_WILDCARDS: Final = 32
"""What the patterns of `like`, and the parts that `contains` looks for, come to in one filter.

Texts of any length are searched for them, by servers that cannot be interrupted meanwhile:
PostgreSQL takes as many steps as the product of pattern and text in the worst case.
"""

_NOTHING: Final = And(())
_TEXTS: Final = frozenset({FieldType.STRING, FieldType.REFERENCE, None})


class FilterParser:
    """Reads one filter; what is returned after a mistake is thrown away."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._nodes = self._values = self._characters = self._wildcards = 0

    def read(self, node: Node) -> Filter | None:
        """Read a filter; None if it is left out."""
        return self._filter(node, 1) if node.given else None

    def _filter(self, node: Node, depth: int) -> Filter:
        self._nodes += 1
        if depth > MOST_DEPTH or self._nodes > MOST_NODES:
            node.wrong(f"goes beyond {MOST_DEPTH} levels or {MOST_NODES} conditions")
            return _NOTHING
        operator = only_member(node, OPERATORS, "operator")
        if operator is None:
            return _NOTHING
        operand = node[operator]
        if operator in {"and", "or"}:
            parts = tuple(self._filter(part, depth + 1) for part in operand.elements(MOST_NODES))
            return And(parts) if operator == "and" else Or(parts)
        if operator == "not":
            return Not(self._filter(operand, depth + 1))
        if operator == "exists":
            target = target_at(operand, self._scope)
            return Exists(target.path) if target else _NOTHING
        return self._condition(operator, operand)

    def _condition(self, operator: str, operand: Node) -> Filter:
        count = OPERATORS[operator]
        parts = operand.elements(count, count)
        target = target_at(parts[0], self._scope) if parts else None
        if target is None:
            return _NOTHING
        condition = _READERS[operator](target, *parts[1:])
        self._weigh(condition, parts[1])
        return condition

    def _weigh(self, condition: Filter, constant: Node) -> None:
        """Count what takes time for each object; a mistake is noted where it is too much."""
        match condition:
            case In(_, values):
                self._values += len(values)
            case Like(_, pattern):
                self._characters += len(pattern)
                wildcards = sum(isinstance(t, Wildcard) for t in tokens(pattern))
                self._wildcards += max(wildcards, 1)
            case Contains(_, str() as part):
                self._characters += len(part)
        if self._values > MOST_VALUES:
            constant.wrong(f"makes the filter have more than {MOST_VALUES} values of in")
        if self._characters > MOST_CHARACTERS or self._wildcards > MOST_WILDCARDS:
            constant.wrong(
                f"makes the filter search for more than {MOST_CHARACTERS} characters or"
                f" {MOST_WILDCARDS} wildcards"
            )


def _constant(node: Node, decode: Callable[[Any], Any], *, nullable: bool = False) -> Any:
    if node.value is None:
        if not nullable:
            node.wrong("cannot be null here")
        return None
    try:
        return decode(node.value)
    except InvalidValue as misfit:
        for place in locations_below(node.pointer, misfit):
            node.mistakes.append(place)
        return None


def _compare(comparison: Comparison, target: Target, constant: Node) -> Filter:
    equality = comparison in {Comparison.EQ, Comparison.NE}
    if not (equality or target.is_scalar):
        constant.wrong(f"values of type {target.type} have no order")
    value = _constant(constant, target.decode, nullable=equality)
    return Compare(comparison, target.path, value)


def _between(target: Target, low: Node, high: Node) -> Filter:
    if not target.is_scalar:
        low.wrong(f"values of type {target.type} have no order")
    return Between(target.path, _constant(low, target.decode), _constant(high, target.decode))


def _in(target: Target, values: Node) -> Filter:
    constants = values.elements(MOST_VALUES)
    return In(target.path, tuple(_constant(c, target.decode, nullable=True) for c in constants))


def _like(target: Target, pattern: Node) -> Filter:
    if target.type not in _TEXTS:
        pattern.wrong(f"values of type {target.type} are no texts")
    if not isinstance(pattern.value, str):
        pattern.wrong("must be a string")
        return _NOTHING
    try:
        tokens(pattern.value)
    except ValueError as error:
        pattern.wrong(str(error))
        return _NOTHING
    return Like(target.path, pattern.value)


def _contains(target: Target, part: Node) -> Filter:
    if target.item is None:
        part.wrong(f"values of type {target.type} contain nothing")
        return _NOTHING
    return Contains(target.path, _constant(part, target.item))


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
"""All operators, with the length of the array that follows; 0 where something else does."""
