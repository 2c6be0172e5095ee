"""The values of all columns as rows, in canonical form, without nulls."""

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

__all__ = ["canonical_field", "cells", "hash_values"]


def cells(
    spec: IndSpec,
    context: StageContext,
    columns: Sequence[ProfiledColumn],
    strides: Mapping[str, int] | None = None,
) -> DataFrame:
    """Return ``column``, ``type`` and ``value`` of each value, of all rows or a sample.

    Args:
        strides: A number n for each table, of which one row in n is read, by its hash; None: all
            rows.
    """
    parts = [*_field_values(spec, context, columns, strides)]
    if any(not column.is_field for column in columns):
        parts.append(_path_values(context, strides))
    raw = reduce(DataFrame.unionByName, parts)
    text, type_ = f.col("text"), f.col("type")
    # One expression for all rows, because one for each column would be too long to compile.
    value = normalise_typed(text, type_, spec.values).alias("value")
    return raw.where(has_value(text, type_, spec.values)).select("column", "type", value)


def hash_values(frame: DataFrame) -> DataFrame:
    """Replace values by 128 bits each, so that exchanged rows are short and of equal size."""
    high, low = hash_key(f.col("value"))
    return frame.select("column", high.alias("high"), low.alias("low"))


def canonical_field(column: ProfiledColumn, spec: IndSpec) -> Column:
    assert column.cell_type is not None
    of = column.cell_type
    text = as_text(quoted(column.path), of)
    value = normalise(text, of, spec.values)
    return f.when(has_value(text, f.lit(of.value), spec.values), value)


def _field_values(
    spec: IndSpec,
    context: StageContext,
    columns: Sequence[ProfiledColumn],
    strides: Mapping[str, int] | None,
) -> Iterator[DataFrame]:
    for table in spec.tables:
        structs = [
            f.struct(
                f.lit(column.number).alias("column"),
                f.lit(column.cell_type).alias("type"),
                as_text(quoted(column.path), column.cell_type).alias("text"),
            )
            for column in columns
            if column.table == table and column.cell_type is not None
        ]
        frame = context.input(table)
        if strides is not None:
            frame = frame.where(f.pmod(row_hash(frame), f.lit(strides[table])) == 0)
        if structs:
            yield frame.select(f.inline(f.array(*structs)))


def _path_values(context: StageContext, strides: Mapping[str, int] | None) -> DataFrame:
    values = context.output("nested")
    if strides is not None:
        conditions = [
            (f.col("table") == table) & (f.pmod("row", f.lit(n)) == 0)
            for table, n in strides.items()
        ]
        values = values.where(reduce(Column.__or__, conditions))
    paths = context.output("columns").where(f.col("type").isNull()).drop("type")
    numbered = values.join(f.broadcast(paths), ["table", "path"])
    return numbered.select(f.col("number").alias("column"), "type", "text")
