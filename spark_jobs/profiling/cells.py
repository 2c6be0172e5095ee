"""The values of all columns, one below the other, in canonical form; nulls have none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_jobs.columns import quoted
from spark_jobs.profiling.canonical import (
    as_text,
    has_value,
    hash_key,
    normalise,
    normalise_typed,
)
from spark_jobs.profiling.columns import ProfiledColumn, row_hash
from spark_jobs.profiling.spec import IndSpec
from spark_jobs.runner.port import StageContext

__all__ = ["canonical_field", "cells", "keyed"]


def cells(
    spec: IndSpec,
    context: StageContext,
    columns: Sequence[ProfiledColumn],
    every: Mapping[str, int] | None = None,
) -> DataFrame:
    """Return ``column``, ``type`` and ``value`` of each value, of all rows or a sample.

    Args:
        every: Of each table one row in so many, by its hash; None: all rows.
    """
    parts = [*_of_fields(spec, context, columns, every)]
    if any(not one.is_field for one in columns):
        parts.append(_of_paths(context, every))
    raw = reduce(DataFrame.unionByName, parts)
    text, type_ = f.col("text"), f.col("type")
    # One expression behind the rows, as one for each column would be too long to compile.
    value = normalise_typed(text, type_, spec.values).alias("value")
    return raw.where(has_value(text, type_, spec.values)).select("column", "type", value)


def keyed(frame: DataFrame) -> DataFrame:
    """Replace values by 128 bits each: what is long is not sent, and all are alike."""
    high, low = hash_key(f.col("value"))
    return frame.select("column", high.alias("high"), low.alias("low"))


def canonical_field(column: ProfiledColumn, spec: IndSpec) -> Column:
    assert column.cell_type is not None
    of = column.cell_type
    text = as_text(quoted(column.path), of)
    value = normalise(text, of, spec.values)
    return f.when(has_value(text, f.lit(of.value), spec.values), value)


def _of_fields(
    spec: IndSpec,
    context: StageContext,
    columns: Sequence[ProfiledColumn],
    every: Mapping[str, int] | None,
) -> Iterator[DataFrame]:
    for table in spec.tables:
        each = [
            f.struct(
                f.lit(one.number).alias("column"),
                f.lit(one.cell_type).alias("type"),
                as_text(quoted(one.path), one.cell_type).alias("text"),
            )
            for one in columns
            if one.table == table and one.cell_type is not None
        ]
        frame = context.input(table)
        if every is not None:
            frame = frame.where(f.pmod(row_hash(frame), f.lit(every[table])) == 0)
        if each:
            yield frame.select(f.inline(f.array(*each)))


def _of_paths(context: StageContext, every: Mapping[str, int] | None) -> DataFrame:
    values = context.output("nested")
    if every is not None:
        sampled = [
            (f.col("table") == table) & (f.pmod("row", f.lit(n)) == 0) for table, n in every.items()
        ]
        values = values.where(reduce(Column.__or__, sampled))
    paths = context.output("columns").where(f.col("type").isNull()).drop("type")
    numbered = values.join(f.broadcast(paths), ["table", "path"])
    return numbered.select(f.col("number").alias("column"), "type", "text")
