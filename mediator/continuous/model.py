"""Continuous queries: windows over streams, and a tree of relational operators above them.

The semantics are CQL's (Arasu et al. 2006): at every slide, a window is a relation, operators
compute relations from relations, and the root's relation is the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

__all__ = [
    "Aggregate",
    "Aggregation",
    "Column",
    "Comparison",
    "Function",
    "Join",
    "Operator",
    "Project",
    "Query",
    "Select",
    "Stream",
    "ValueType",
    "Window",
    "inputs_of",
    "post_order",
    "relational",
    "with_inputs",
]


class ValueType(StrEnum):
    """Integers have 64 bits, numbers are IEEE doubles; no value is ever null."""

    INTEGER = "integer"
    NUMBER = "number"
    STRING = "string"

    @property
    def is_numeric(self) -> bool:
        return self is not ValueType.STRING


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream of tuples; its rate is in tuples a second."""

    fields: Mapping[str, ValueType]
    rate: float


@dataclass(frozen=True, slots=True)
class Window:
    """The tuples of a stream in the last seconds, or its last rows; exactly one is set."""

    name: str
    stream: str
    fields: Mapping[str, ValueType]
    range_s: float | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """Another field, multiplied by a number."""

    field: str
    times: float = 1.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of a field with a constant or another field; numbers compare as doubles."""

    comparator: str
    field: str
    other: Column | float | str


@dataclass(frozen=True, slots=True)
class Select:
    """The tuples for which every comparison holds.

    Attributes:
        selectivity: The share of tuples for which they hold.
    """

    name: str
    of: Operator
    where: tuple[Comparison, ...]
    selectivity: float

    @property
    def fields(self) -> Mapping[str, ValueType]:
        return self.of.fields


@dataclass(frozen=True, slots=True)
class Project:
    """Some fields under new names; duplicates stay."""

    name: str
    of: Operator
    columns: Mapping[str, str]

    @property
    def fields(self) -> Mapping[str, ValueType]:
        return {new: self.of.fields[old] for new, old in self.columns.items()}


@dataclass(frozen=True, slots=True)
class Join:
    """The natural join: tuples that agree in all common fields."""

    name: str
    left: Operator
    right: Operator

    @property
    def fields(self) -> Mapping[str, ValueType]:
        return {**self.left.fields, **self.right.fields}

    @property
    def shared(self) -> tuple[str, ...]:
        right = self.right.fields
        return tuple(name for name in self.left.fields if name in right)


class Function(StrEnum):
    COUNT = "count"
    SUM = "sum"
    AVERAGE = "average"
    MINIMUM = "minimum"
    MAXIMUM = "maximum"


@dataclass(frozen=True, slots=True)
class Aggregation:
    """A function of a field over a group; a count has no field."""

    function: Function
    field: str | None = None


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One tuple for each non-empty group; without `by`, all tuples are one group."""

    name: str
    of: Operator
    by: tuple[str, ...]
    columns: Mapping[str, Aggregation]

    @property
    def fields(self) -> Mapping[str, ValueType]:
        below = self.of.fields
        columns = {name: _type_of(aggregation, below) for name, aggregation in self.columns.items()}
        return {**{name: below[name] for name in self.by}, **columns}


Operator: TypeAlias = Window | Select | Project | Join | Aggregate


@dataclass(frozen=True, slots=True)
class Query:
    """A continuous query.

    Attributes:
        slide_s: Seconds from one result to the next.
        distinct: Approximate number of values of fields that are joined or grouped by.
    """

    streams: Mapping[str, Stream]
    root: Operator
    slide_s: float
    distinct: Mapping[str, float]

    def at_rate(self, factor: float) -> Query:
        """Return the query with the rates of all streams multiplied."""
        streams = {
            name: replace(stream, rate=stream.rate * factor)
            for name, stream in self.streams.items()
        }
        return replace(self, streams=streams)


def inputs_of(operator: Operator) -> tuple[Operator, ...]:
    match operator:
        case Window():
            return ()
        case Join(left=left, right=right):
            return left, right
        case _:
            return (operator.of,)


def with_inputs(operator: Operator, inputs: tuple[Operator, ...]) -> Operator:
    """Return the operator over other inputs with the same fields."""
    match operator:
        case Window():
            return operator
        case Join():
            left, right = inputs
            return replace(operator, left=left, right=right)
        case _:
            return replace(operator, of=inputs[0])


def post_order(root: Operator) -> Iterator[Operator]:
    """Yield all operators, each after its inputs."""
    for input_ in inputs_of(root):
        yield from post_order(input_)
    yield root


def relational(root: Operator) -> list[Operator]:
    """Return the relational operators in post-order: all except windows."""
    return [operator for operator in post_order(root) if not isinstance(operator, Window)]


def _type_of(aggregation: Aggregation, fields: Mapping[str, ValueType]) -> ValueType:
    match aggregation.function:
        case Function.COUNT:
            return ValueType.INTEGER
        case Function.SUM | Function.AVERAGE:
            return ValueType.NUMBER
        case _:
            assert aggregation.field is not None
            return fields[aggregation.field]
