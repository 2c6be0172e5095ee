"""Conditions and aggregates as Spark expressions, without parsing any text of users."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import Column as Expression
from pyspark.sql import functions as f

from mediator.continuous.model import (
    Aggregate,
    Aggregation,
    Column,
    Comparison,
    Function,
    Select,
)
from mediator.continuous.statement import FROM, SLIDE, UNTIL

__all__ = ["SPAN", "aggregations", "as_slide", "condition_of", "is_valid", "long"]

SPAN: Final = (FROM, UNTIL)

_COMPARATORS: Final[Mapping[str, Callable[[Expression, Expression], Expression]]] = {
    "eq": lambda one, other: one == other,
    "ne": lambda one, other: one != other,
    "lt": lambda one, other: one < other,
    "le": lambda one, other: one <= other,
    "gt": lambda one, other: one > other,
    "ge": lambda one, other: one >= other,
}


def is_valid() -> Expression:
    """Return whether a row is valid at any slide."""
    return f.col(FROM) < f.col(UNTIL)


def long(value: int) -> Expression:
    return f.lit(value).cast("long")


def as_slide(time_us: Expression, slide_us: int) -> Expression:
    """Return the number of the first slide at or after a time."""
    slide = long(slide_us)
    until_slide = f.pmod(slide - f.pmod(time_us, slide), slide)
    # Integers of less than 53 bits: the division of doubles is exact.
    return ((time_us + until_slide) / slide).cast("long")


def condition_of(select: Select) -> Expression:
    comparisons = [_comparison(comparison, select) for comparison in select.where]
    return reduce(lambda one, other: one & other, comparisons)


def aggregations(
    aggregate: Aggregate,
) -> tuple[list[Expression], list[Expression], list[Expression]]:
    """Return the expressions of partial results, of their merging, and of final results."""
    make, merge, results = [], [], []
    for at, (name, aggregation) in enumerate(aggregate.columns.items()):
        partials = {f"_{at}_{part}": value for part, value in _partials(aggregation).items()}
        make += [partial.make.alias(column) for column, partial in partials.items()]
        merge += [partial.merge(column).alias(column) for column, partial in partials.items()]
        columns = [f.col(column) for column in partials]
        result = columns[0] if len(columns) == 1 else columns[0] / columns[1]
        results.append(result.alias(name))
    results += [f.col(SLIDE).alias(FROM), (f.col(SLIDE) + 1).alias(UNTIL)]
    return make, merge, results


@dataclass(frozen=True, slots=True)
class _Partial:
    """A column of a partial result: computed from rows, and merged from partial results."""

    make: Expression
    merge: Callable[[str], Expression]


def _partials(aggregation: Aggregation) -> Mapping[str, _Partial]:
    field = aggregation.field
    count = _Partial(f.count(f.lit(1)), f.sum)
    if field is None:
        return {"count": count}
    total = _Partial(f.sum(f.col(field).cast("double")), f.sum)
    match aggregation.function:
        case Function.SUM:
            return {"sum": total}
        case Function.AVERAGE:
            return {"sum": total, "count": count}
        case Function.MINIMUM:
            return {"least": _Partial(f.min(field), f.min)}
        case _:
            return {"most": _Partial(f.max(field), f.max)}


def _comparison(comparison: Comparison, select: Select) -> Expression:
    is_numeric = select.fields[comparison.field].is_numeric
    kind = "double" if is_numeric else "string"
    one = f.col(comparison.field).cast(kind)
    match comparison.other:
        case Column(field=field, times=times):
            other = f.col(field).cast(kind)
            other = other * f.lit(float(times)) if is_numeric else other
        case constant:
            other = f.lit(constant).cast(kind)
    return _COMPARATORS[comparison.comparator](one, other)
