"""Operators on Spark: a batch's additions to their results, from its additions to their inputs.

A row of a relation is valid at the slides from `FROM` to before `UNTIL`. So a window only adds
rows, which expire by themselves; a join finds pairs with a row of the batch, valid as long as both
rows are; and an aggregate merges partial results, one for all rows of a group with the same slides
(panes; Li et al. 2005).

Rows of an aggregate, of a statement, or of a window of rows are valid only at the slides of their
batch. Later batches do not use them, so they are not stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Window as Over
from pyspark.sql import functions as f

from mediator.continuous.model import Aggregate, Join, Operator, Project, Select, Window
from mediator.continuous.statement import FROM, SLIDE, UNTIL
from spark_jobs.continuous.expressions import (
    SPAN,
    aggregations,
    as_slide,
    condition_of,
    is_valid,
    long,
)
from spark_jobs.continuous.log import ORDER, STREAM, TIME, TupleLog, microseconds
from spark_jobs.continuous.state import KeptRows

__all__ = ["Batch", "Changes", "SparkOperators"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch: its tuples, and the slides that it completes."""

    number: int
    tuples: DataFrame
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Changes:
    """Rows that a batch adds to a relation.

    Attributes:
        is_kept: Whether they are stored for later batches.
    """

    rows: DataFrame
    is_kept: bool


class SparkOperators:
    """Executes operators of one query, with the state of their inputs in a directory."""

    def __init__(self, session: SparkSession, log: TupleLog, directory: Path) -> None:
        self._session, self._log, self._directory = session, log, directory
        self._expressions: dict[str, Any] = {}

    def changes(self, operator: Operator, inputs: list[Changes], batch: Batch) -> Changes:
        """Return a batch's additions to the result of an operator; call it once per batch."""
        match operator:
            case Window(rows=None):
                return Changes(self._window_of_time(operator, batch), is_kept=True)
            case Window():
                return Changes(self._window_of_rows(operator, batch), is_kept=False)
            case Select():
                condition = self._cached(operator.name, lambda: condition_of(operator))
                return Changes(inputs[0].rows.where(condition), inputs[0].is_kept)
            case Project(columns=columns):
                renamed = [f.col(old).alias(new) for new, old in columns.items()]
                return Changes(inputs[0].rows.select(*renamed, *SPAN), inputs[0].is_kept)
            case Join():
                left, right = inputs
                return self._join(operator, left, right, batch)
            case Aggregate():
                return Changes(self._aggregate(operator, inputs[0], batch), is_kept=False)

    def at_slides(self, name: str, changes: Changes, batch: Batch) -> DataFrame:
        """Return a relation at each slide of a batch."""
        return _at_slides(self._all_rows(name, changes, batch), batch).drop(*SPAN)

    def _cached(self, name: str, make: Callable[[], T]) -> T:
        """Return expressions, cached after the first batch: building one takes many Java calls."""
        if name not in self._expressions:
            self._expressions[name] = make()
        expressions: T = self._expressions[name]
        return expressions

    def _window_of_time(self, window: Window, batch: Batch) -> DataFrame:
        range_us = microseconds(window.range_s or 0.0)
        expires = self._cached(
            f"{window.name}.expires",
            lambda: as_slide(f.col(TIME) + long(range_us), self._log.slide_us),
        )
        rows = self._tuples(window, batch).withColumn(UNTIL, expires)
        return rows.where(is_valid()).select(*window.fields, *SPAN)

    def _window_of_rows(self, window: Window, batch: Batch) -> DataFrame:
        """Return the last rows; a row's end is known only after enough later rows."""
        assert window.rows is not None
        new_rows = self._tuples(window, batch).withColumn(UNTIL, long(batch.last + 2))
        new_rows = new_rows.select(*window.fields, TIME, ORDER, *SPAN)
        state = self._state(window.name)
        earlier = state.before(batch.number, batch.first, new_rows.schema)
        rows = new_rows if earlier is None else earlier.unionByName(new_rows)
        next_from = f.lead(FROM, window.rows).over(Over.orderBy(TIME, ORDER))
        rows = rows.withColumn(UNTIL, f.coalesce(next_from, long(batch.last + 2)))
        state.keep(batch.number, rows.where(f.col(UNTIL) > batch.last + 1))
        start, end = _within(batch)
        rows = rows.withColumn(FROM, start).withColumn(UNTIL, end)
        return rows.where(is_valid()).select(*window.fields, *SPAN)

    def _tuples(self, window: Window, batch: Batch) -> DataFrame:
        def fields() -> list[Expression]:
            column = self._log.column
            return [f.col(column(window.stream, name)).alias(name) for name in window.fields]

        of_stream = batch.tuples.where(f.col(STREAM) == self._log.number(window.stream))
        return of_stream.select(*self._cached(window.name, fields), TIME, ORDER, FROM)

    def _join(self, join: Join, left: Changes, right: Changes, batch: Batch) -> Changes:
        """Join new right rows with all left rows, and new left rows with earlier right rows."""
        old_left, new_left = self._with_earlier(f"{join.name}.left", left, batch)
        old_right, new_right = self._with_earlier(f"{join.name}.right", right, batch)
        all_left = new_left if old_left is None else old_left.unionByName(new_left)
        pairs = _join_rows(join, all_left, new_right)
        if old_right is not None:
            pairs = pairs.unionByName(_join_rows(join, new_left, old_right))
        return Changes(pairs, left.is_kept and right.is_kept)

    def _with_earlier(
        self, name: str, changes: Changes, batch: Batch
    ) -> tuple[DataFrame | None, DataFrame]:
        """Return the rows of earlier batches, if any, and of this batch."""
        if not changes.is_kept:
            return None, changes.rows
        state = self._state(name)
        earlier = state.before(batch.number, batch.first, changes.rows.schema)
        return earlier, state.keep(batch.number, changes.rows)

    def _all_rows(self, name: str, changes: Changes, batch: Batch) -> DataFrame:
        earlier, new_rows = self._with_earlier(name, changes, batch)
        return new_rows if earlier is None else earlier.unionByName(new_rows)

    def _aggregate(self, aggregate: Aggregate, input_: Changes, batch: Batch) -> DataFrame:
        make, merge, results = self._cached(aggregate.name, lambda: aggregations(aggregate))
        new_rows = input_.rows.groupBy(*aggregate.by, *SPAN).agg(*make)
        rows = self._all_rows(aggregate.name, Changes(new_rows, input_.is_kept), batch)
        groups = _at_slides(rows, batch).groupBy(*aggregate.by, SLIDE).agg(*merge)
        return groups.select(*aggregate.by, *results)

    def _state(self, name: str) -> KeptRows:
        return KeptRows(self._session, self._directory / name)


def _within(batch: Batch) -> tuple[Expression, Expression]:
    """Return the first slide of a batch at which a row is valid, and the one after the last."""
    return f.greatest(FROM, long(batch.first)), f.least(UNTIL, long(batch.last + 1))


def _at_slides(rows: DataFrame, batch: Batch) -> DataFrame:
    """Repeat rows for each slide of a batch at which they are valid."""
    start, end = _within(batch)
    valid = rows.where(start < end)
    if batch.first == batch.last:
        return valid.withColumn(SLIDE, long(batch.first))
    return valid.withColumn(SLIDE, f.explode(f.sequence(start, end - 1)))


def _join_rows(join: Join, left: DataFrame, right: DataFrame) -> DataFrame:
    """Join rows that agree in shared fields; a pair is valid while both rows are."""
    left = left.withColumnsRenamed({FROM: "_left_from", UNTIL: "_left_until"})
    pairs = left.join(right, list(join.shared))
    start, end = f.greatest(FROM, "_left_from"), f.least(UNTIL, "_left_until")
    return pairs.select(*join.fields, start.alias(FROM), end.alias(UNTIL)).where(is_valid())
