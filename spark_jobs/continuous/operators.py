"""Operators on Spark: what a batch adds to their results, by what it adds to their inputs.

A row of a relation has the slides at which it is there: `FROM` is the first one, and `UNTIL` the
first one at which it is not. So a window only adds rows, as they expire by themselves; a join finds
pairs with a row of the batch, which are there as long as both are; and an aggregate merges partial
results, one for all rows of a group that come and go at the same slides (panes; Li et al. 2005).

Rows of an aggregate, of a statement, or of a window of rows are there at the slides of their batch
only. No later batch meets them, and they are not kept.
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
    is_there,
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
        is_kept: Whether later batches meet them.
    """

    rows: DataFrame
    is_kept: bool


class SparkOperators:
    """Executes operators of one query, with what is kept of their inputs in a directory."""

    def __init__(self, session: SparkSession, log: TupleLog, directory: Path) -> None:
        self._session, self._log, self._directory = session, log, directory
        self._prepared: dict[str, Any] = {}

    def changes(self, operator: Operator, below: list[Changes], batch: Batch) -> Changes:
        """Return what a batch adds to the result of an operator, once for each batch."""
        match operator:
            case Window(rows=None):
                return Changes(self._window_of_time(operator, batch), is_kept=True)
            case Window():
                return Changes(self._window_of_rows(operator, batch), is_kept=False)
            case Select():
                condition = self._once(operator.name, lambda: condition_of(operator))
                return Changes(below[0].rows.where(condition), below[0].is_kept)
            case Project(columns=columns):
                renamed = [f.col(old).alias(new) for new, old in columns.items()]
                return Changes(below[0].rows.select(*renamed, *SPAN), below[0].is_kept)
            case Join():
                left, right = below
                return self._join(operator, left, right, batch)
            case Aggregate():
                return Changes(self._aggregate(operator, below[0], batch), is_kept=False)

    def at_slides(self, name: str, changes: Changes, batch: Batch) -> DataFrame:
        """Return a relation as it is at each slide of a batch."""
        return _at_slides(self._everything(name, changes, batch), batch).drop(*SPAN)

    def _once(self, name: str, make: Callable[[], T]) -> T:
        """Return expressions that are made for the first batch: each is many calls of Java."""
        if name not in self._prepared:
            self._prepared[name] = make()
        prepared: T = self._prepared[name]
        return prepared

    def _window_of_time(self, window: Window, batch: Batch) -> DataFrame:
        range_us = microseconds(window.range_s or 0.0)
        expires = self._once(
            f"{window.name}.expires",
            lambda: as_slide(f.col(TIME) + long(range_us), self._log.slide_us),
        )
        rows = self._tuples(window, batch).withColumn(UNTIL, expires)
        return rows.where(is_there()).select(*window.fields, *SPAN)

    def _window_of_rows(self, window: Window, batch: Batch) -> DataFrame:
        """Return the last rows anew: when one leaves is known when as many have followed."""
        assert window.rows is not None
        arrived = self._tuples(window, batch).withColumn(UNTIL, long(batch.last + 2))
        arrived = arrived.select(*window.fields, TIME, ORDER, *SPAN)
        kept = self._kept(window.name)
        earlier = kept.before(batch.number, batch.first, arrived.schema)
        rows = arrived if earlier is None else earlier.unionByName(arrived)
        followed = f.lead(FROM, window.rows).over(Over.orderBy(TIME, ORDER))
        rows = rows.withColumn(UNTIL, f.coalesce(followed, long(batch.last + 2)))
        kept.keep(batch.number, rows.where(f.col(UNTIL) > batch.last + 1))
        start, end = _within(batch)
        rows = rows.withColumn(FROM, start).withColumn(UNTIL, end)
        return rows.where(is_there()).select(*window.fields, *SPAN)

    def _tuples(self, window: Window, batch: Batch) -> DataFrame:
        def fields() -> list[Expression]:
            column = self._log.column
            return [f.col(column(window.stream, name)).alias(name) for name in window.fields]

        of_stream = batch.tuples.where(f.col(STREAM) == self._log.number(window.stream))
        return of_stream.select(*self._once(window.name, fields), TIME, ORDER, FROM)

    def _join(self, join: Join, left: Changes, right: Changes, batch: Batch) -> Changes:
        """Join rows of this batch with all, and the other way with those of earlier batches."""
        kept_left, left_now = self._with_earlier(f"{join.name}.left", left, batch)
        kept_right, right_now = self._with_earlier(f"{join.name}.right", right, batch)
        everything = left_now if kept_left is None else kept_left.unionByName(left_now)
        found = _joined(join, everything, right_now)
        if kept_right is not None:
            found = found.unionByName(_joined(join, left_now, kept_right))
        return Changes(found, left.is_kept and right.is_kept)

    def _with_earlier(
        self, name: str, changes: Changes, batch: Batch
    ) -> tuple[DataFrame | None, DataFrame]:
        """Return the rows of earlier batches, if there are any, and those of this one."""
        if not changes.is_kept:
            return None, changes.rows
        kept = self._kept(name)
        earlier = kept.before(batch.number, batch.first, changes.rows.schema)
        return earlier, kept.keep(batch.number, changes.rows)

    def _everything(self, name: str, changes: Changes, batch: Batch) -> DataFrame:
        earlier, now = self._with_earlier(name, changes, batch)
        return now if earlier is None else earlier.unionByName(now)

    def _aggregate(self, aggregate: Aggregate, below: Changes, batch: Batch) -> DataFrame:
        make, merge, results = self._once(aggregate.name, lambda: aggregations(aggregate))
        now = below.rows.groupBy(*aggregate.by, *SPAN).agg(*make)
        rows = self._everything(aggregate.name, Changes(now, below.is_kept), batch)
        groups = _at_slides(rows, batch).groupBy(*aggregate.by, SLIDE).agg(*merge)
        return groups.select(*aggregate.by, *results)

    def _kept(self, name: str) -> KeptRows:
        return KeptRows(self._session, self._directory / name)


def _within(batch: Batch) -> tuple[Expression, Expression]:
    """Return the first slide of a batch at which a row is there, and the one behind the last."""
    return f.greatest(FROM, long(batch.first)), f.least(UNTIL, long(batch.last + 1))


def _at_slides(rows: DataFrame, batch: Batch) -> DataFrame:
    """Repeat rows for each slide of a batch at which they are there."""
    start, end = _within(batch)
    there = rows.where(start < end)
    if batch.first == batch.last:
        return there.withColumn(SLIDE, long(batch.first))
    return there.withColumn(SLIDE, f.explode(f.sequence(start, end - 1)))


def _joined(join: Join, left: DataFrame, right: DataFrame) -> DataFrame:
    """Join rows that agree in what both have; a pair is there as long as both of its rows are."""
    left = left.withColumnsRenamed({FROM: "_left_from", UNTIL: "_left_until"})
    pairs = left.join(right, list(join.shared))
    start, end = f.greatest(FROM, "_left_from"), f.least(UNTIL, "_left_until")
    return pairs.select(*join.fields, start.alias(FROM), end.alias(UNTIL)).where(is_there())
