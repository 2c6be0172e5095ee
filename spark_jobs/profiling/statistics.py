"""Statistics of columns: values, nulls, distinct values, extremes, types, patterns, top values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from spark_jobs.profiling.canonical import NUMBER, CellType
from spark_jobs.profiling.cells import cells
from spark_jobs.profiling.columns import ProfiledColumn, load_columns
from spark_jobs.profiling.spec import IndSpec
from spark_jobs.runner.port import StageContext

__all__ = ["report", "statistics"]

_SAMPLE: Final = 20_000
"""Sampled rows of a table for top values and patterns; all rows of a smaller table."""
_TOP: Final = 5
_MAX_CHARACTERS: Final = 64
"""Maximum characters of a value or a pattern in the report."""
_RUNS: Final = (("\\p{Lu}+", "A"), ("\\p{L}+", "a"), ("[0-9]+", "9"))
_TYPES: Final = tuple(item.value for item in CellType if item is not CellType.EMPTY)

_MEASURES: Final[Mapping[str, tuple[str, str]]] = {
    "values": ("shown", "count"),
    "numbers": ("number", "count"),
    "characters": ("characters", "sum"),
    "least": ("size", "min"),
    "greatest": ("size", "max"),
    "least_number": ("number", "first"),
    "greatest_number": ("number", "last"),
    "first": ("shown", "min"),
    "last": ("shown", "max"),
}
_PARTS: Final = (
    "column int, type string, values long, numbers long, characters long, least double,"
    " greatest double, least_number string, greatest_number string, first string, last string"
)


def statistics(spec: IndSpec, context: StageContext) -> DataFrame:
    """Return a row for each column that has values."""
    columns = load_columns(context)
    strides = {t: -(-context.input_rows(t) // _SAMPLE) or 1 for t in spec.tables}
    sample = cells(spec, context, columns, strides)
    prefix = f.substring("value", 1, _MAX_CHARACTERS).alias("value")
    value_counts = sample.groupBy("column", prefix).agg(f.count("*").alias("n"))
    patterns = value_counts.groupBy("column", _pattern(f.col("value")).alias("value"))
    all_counts = _count(cells(spec, context, columns))
    top, shapes = (
        _top_values(value_counts, "top"),
        _top_values(patterns.agg(f.sum("n").alias("n")), "patterns"),
    )
    return all_counts.join(top, "column", "left").join(shapes, "column", "left")


def report(
    columns: Sequence[ProfiledColumn],
    by_column: Mapping[int, Mapping[str, Any]],
    rows: Mapping[str, int],
    distinct: Mapping[int, int],
) -> dict[str, Any]:
    """Return the statistics of all columns as JSON, including columns without values."""
    return {"columns": [_describe(column, by_column, rows, distinct) for column in columns]}


def _describe(
    column: ProfiledColumn,
    by_column: Mapping[int, Mapping[str, Any]],
    rows: Mapping[str, int],
    distinct: Mapping[int, int],
) -> dict[str, Any]:
    head = {"table": column.table, "column": column.path, "rows": rows[column.table]}
    nulls = {} if not column.is_field else {"nulls": rows[column.table]}
    measures = by_column.get(column.number)
    if measures is None:
        return {**head, **nulls, "values": 0, "distinct": 0}
    if nulls:
        nulls = {"nulls": rows[column.table] - measures["values"]}
    types = {name: measures[name] for name in _TYPES if measures[name]}
    numbers = {"numbers": measures["numbers"]} if measures["numbers"] else {}
    return {
        **head, **nulls, "values": measures["values"], "distinct": distinct.get(column.number, 0),
        "types": types, **numbers,
        "min": measures["least"], "max": measures["greatest"],
        "mean_length": round(measures["length"], 1),
        **{name: [dict(item) for item in measures[name] or ()] for name in ("patterns", "top")},
    }  # fmt: skip


def _count(values: DataFrame) -> DataFrame:
    """Count values, and find extremes: as numbers if all values are numbers, otherwise as texts.

    Arrow counts batches, because Spark would sort all values to find a column's least text.
    """
    parts = values.select("column", "type", "value").mapInArrow(_count_batches, _PARTS)
    all_numbers = f.sum("numbers") == f.sum("values")
    minimum, maximum = f.min_by("least_number", "least"), f.max_by("greatest_number", "greatest")
    return parts.groupBy("column").agg(
        f.sum("values").alias("values"),
        f.sum("numbers").alias("numbers"),
        *(f.sum(f.when(f.col("type") == t, f.col("values")).otherwise(0)).alias(t) for t in _TYPES),
        f.when(all_numbers, minimum).otherwise(f.min("first")).alias("least"),
        f.when(all_numbers, maximum).otherwise(f.max("last")).alias("greatest"),
        (f.sum("characters") / f.sum("values")).alias("length"),
    )


def _count_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the measures of each batch, by column and type."""
    for batch in batches:
        value = batch.column("value")
        number = pc.if_else(pc.match_substring_regex(value, NUMBER), value, None)
        measured = pa.table(
            {
                "column": batch.column("column"),
                "type": batch.column("type"),
                "number": number,
                "size": pc.cast(number, pa.float64()),
                "shown": pc.utf8_slice_codeunits(value, 0, _MAX_CHARACTERS),
                "characters": pc.utf8_length(value),
            }
        ).sort_by("size")
        # In one thread, the first number is the least.
        grouped = measured.group_by(["column", "type"], use_threads=False)
        counts = grouped.aggregate([*_MEASURES.values()])
        measures = {name: counts.column("_".join(key)) for name, key in _MEASURES.items()}
        keys = {name: counts.column(name) for name in ("column", "type")}
        yield from pa.table({**keys, **measures}).to_batches()


def _top_values(counts: DataFrame, name: str) -> DataFrame:
    """Return the most frequent values of each column, with their shares of the sample."""
    by_column = Window.partitionBy("column")
    rank = f.row_number().over(by_column.orderBy(f.desc("n"), "value")).alias("rank")
    total = f.sum("n").over(by_column)
    ranked = counts.select("column", "value", (f.col("n") / total).alias("share"), rank)
    entry = f.struct("rank", "value", "share")
    best = ranked.where(f.col("rank") <= _TOP).groupBy("column")
    ranked_list = f.array_sort(f.collect_list(entry))
    without_rank = f.transform(ranked_list, lambda at: f.struct(at["value"], at["share"]))
    return best.agg(without_rank.alias(name))


def _pattern(value: Column) -> Column:
    """Return the shape of a value: ``A`` for capitals, ``a`` for other words, ``9`` for digits."""
    for run, letter in _RUNS:
        value = f.regexp_replace(value, run, letter)
    return value
