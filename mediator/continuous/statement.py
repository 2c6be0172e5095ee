"""A fragment of operators as one PostgreSQL statement.

A shipped relation is a table whose tuples contain the slides at which they are valid: from `FROM`
(inclusive) to `UNTIL` (exclusive). The statement takes the first and the last slide of a
micro-batch, and returns the result at each slide. Names were validated by the parser and are quoted
nevertheless; values are parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from mediator.continuous.model import (
    Aggregate,
    Aggregation,
    Column,
    Comparison,
    Function,
    Join,
    Operator,
    Project,
    Select,
    ValueType,
    inputs_of,
)
from mediator.stores.postgres.sql import quoted

__all__ = [
    "BATCH",
    "FROM",
    "REPLACED",
    "SLIDE",
    "UNTIL",
    "Statement",
    "shipped_columns",
    "statement_of",
]

FROM: Final = "_from"
UNTIL: Final = "_until"
BATCH: Final = "_batch"
SLIDE: Final = "_slide"
"""Internal columns: fields cannot have their names, as field names begin with a letter."""

REPLACED: Final = f"{quoted(BATCH)} >= $1 OR {quoted(UNTIL)} <= $2"
"""Matches the tuples that are obsolete as of batch number $1, whose first slide is $2."""

_TYPES: Final[Mapping[ValueType, str]] = {
    ValueType.INTEGER: "bigint",
    ValueType.NUMBER: "double precision",
    # Compared bytewise like in Spark, whatever the database's collation.
    ValueType.STRING: 'text COLLATE "C"',
}
_COMPARATORS: Final[Mapping[str, str]] = {
    "eq": "=",
    "ne": "<>",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
}
_FUNCTIONS: Final[Mapping[Function, str]] = {
    Function.SUM: "sum({}::double precision)",
    Function.AVERAGE: "avg({}::double precision)",
    Function.MINIMUM: "min({})",
    Function.MAXIMUM: "max({})",
}


@dataclass(frozen=True, slots=True)
class Statement:
    """A fragment as a statement.

    Attributes:
        text: Its parameters are the first slide, the last slide, and the arguments.
        inputs: The operators whose results are shipped, by table.
        root: The operator whose result it returns, per slide.
    """

    text: str
    arguments: tuple[float | str, ...]
    inputs: Mapping[str, Operator]
    root: Operator


def statement_of(schema: str, task: str, fragment: Sequence[Operator]) -> Statement:
    """Return the statement of a fragment in post-order; its tables are named after the task."""
    writer = _Writer(schema, task, fragment)
    root = fragment[-1]
    columns = ", ".join(quoted("result", name) for name in root.fields)
    text = (
        f"SELECT slides.slide AS {quoted(SLIDE)}, {columns}"  # noqa: S608 - quoted identifiers
        " FROM generate_series($1::bigint, $2::bigint) AS slides(slide),"
        f" LATERAL ({writer.relation(root)}) AS result"
    )
    return Statement(text, tuple(writer.arguments), writer.inputs, root)


def shipped_columns(operator: Operator) -> dict[str, str]:
    """Return the columns, with types, of the table for an operator's shipped results."""
    fields = {name: _TYPES[kind] for name, kind in operator.fields.items()}
    return {**fields, FROM: "bigint", UNTIL: "bigint", BATCH: "bigint"}


class _Writer:
    def __init__(self, schema: str, task: str, fragment: Sequence[Operator]) -> None:
        self._schema, self._task = schema, task
        self._inside = {operator.name for operator in fragment}
        self._aliases = (f"t{number}" for number in count())
        self.arguments: list[float | str] = []
        self.inputs: dict[str, Operator] = {}

    def relation(self, operator: Operator) -> str:
        if operator.name not in self._inside:
            return self._shipped(operator)
        below = [
            f"({self.relation(input_)}) AS {alias}"
            for input_, alias in zip(inputs_of(operator), self._aliases, strict=False)
        ]
        match operator:
            case Select(where=where):
                source = below[0]
                conditions = " AND ".join(
                    self._comparison(condition, operator) for condition in where
                )
                return f"SELECT {_list(operator.fields)} FROM {source} WHERE {conditions}"  # noqa: S608 - quoted identifiers
            case Project(columns=columns):
                renamed = ", ".join(f"{quoted(o)} AS {quoted(n)}" for n, o in columns.items())
                return f"SELECT {renamed} FROM {below[0]}"  # noqa: S608 - quoted identifiers
            case Join(shared=shared):
                left, right = below
                using = _list(shared)
                return f"SELECT {_list(operator.fields)} FROM {left} JOIN {right} USING ({using})"  # noqa: S608 - quoted identifiers
            case Aggregate(by=by, columns=aggregations):
                computed = [f"{_aggregation(a)} AS {quoted(n)}" for n, a in aggregations.items()]
                columns_ = ", ".join([*map(quoted, by), *computed])
                # Without groups, SQL aggregates an empty input to one row; here, it has no group.
                grouped = f" GROUP BY {_list(by)}" if by else " HAVING count(*) > 0"
                return f"SELECT {columns_} FROM {below[0]}{grouped}"  # noqa: S608 - quoted identifiers
            case _:
                raise AssertionError(operator)

    def _shipped(self, operator: Operator) -> str:
        table = f"{self._task}_{len(self.inputs)}"
        self.inputs[table] = operator
        return (
            f"SELECT {_list(operator.fields)} FROM {quoted(self._schema, table)}"  # noqa: S608 - quoted identifiers
            f" WHERE {quoted(FROM)} <= slides.slide AND {quoted(UNTIL)} > slides.slide"
        )

    def _comparison(self, comparison: Comparison, operator: Operator) -> str:
        is_numeric = operator.fields[comparison.field].is_numeric
        kind = _TYPES[ValueType.NUMBER if is_numeric else ValueType.STRING]
        one = f"{quoted(comparison.field)}::{kind}"
        match comparison.other:
            case Column(field=field, times=times):
                other = f"{quoted(field)}::{kind}"
                if is_numeric:
                    other = f"{other} * {self._argument(times, kind)}"
            case constant:
                other = self._argument(constant, kind)
        return f"{one} {_COMPARATORS[comparison.comparator]} {other}"

    def _argument(self, value: float | str, kind: str) -> str:
        self.arguments.append(value)
        return f"${len(self.arguments) + 2}::{kind}"


def _aggregation(aggregation: Aggregation) -> str:
    if aggregation.field is None:
        return "count(*)"
    return _FUNCTIONS[aggregation.function].format(quoted(aggregation.field))


def _list(names: Sequence[str] | Mapping[str, ValueType]) -> str:
    return ", ".join(map(quoted, names))
