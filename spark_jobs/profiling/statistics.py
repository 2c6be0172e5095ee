"""What each column holds: values, nulls, distinct values, extremes, types, patterns, top values."""

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
"""Rows of a table of which top values and patterns are counted; all of a smaller one."""
_TOP: Final = 5
_SHOWN: Final = 64
"""Characters of a value or a pattern that are shown."""
_RUNS: Final = (("\\p{Lu}+", "A"), ("\\p{L}+", "a"), ("[0-9]+", "9"))
_TYPES: Final = tuple(one.value for one in CellType if one is not CellType.EMPTY)

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
    every = {t: -(-context.input_rows(t) // _SAMPLE) or 1 for t in spec.tables}
    sample = cells(spec, context, columns, every)
    shown = f.substring("value", 1, _SHOWN).alias("value")
    counted = sample.groupBy("column", shown).agg(f.count("*").alias("n"))
    patterns = counted.groupBy("column", _pattern(f.col("value")).alias("value"))
    whole = _counted(cells(spec, context, columns))
    top, shapes = _most(counted, "top"), _most(patterns.agg(f.sum("n").alias("n")), "patterns")
    return whole.join(top, "column", "left").join(shapes, "column", "left")


def report(
    columns: Sequence[ProfiledColumn],
    found: Mapping[int, Mapping[str, Any]],
    rows: Mapping[str, int],
    distinct: Mapping[int, int],
) -> dict[str, Any]:
    """Return the statistics of all columns as JSON, also of those without values."""
    return {"columns": [_described(one, found, rows, distinct) for one in columns]}


def _described(
    column: ProfiledColumn,
    found: Mapping[int, Mapping[str, Any]],
    rows: Mapping[str, int],
    distinct: Mapping[int, int],
) -> dict[str, Any]:
    said = {"table": column.table, "column": column.path, "rows": rows[column.table]}
    nulls = {} if not column.is_field else {"nulls": rows[column.table]}
    own = found.get(column.number)
    if own is None:
        return {**said, **nulls, "values": 0, "distinct": 0}
    if nulls:
        nulls = {"nulls": rows[column.table] - own["values"]}
    types = {name: own[name] for name in _TYPES if own[name]}
    numbers = {"numbers": own["numbers"]} if own["numbers"] else {}
    return {
        **said, **nulls, "values": own["values"], "distinct": distinct.get(column.number, 0),
        "types": types, **numbers,
        "min": own["least"], "max": own["greatest"], "mean_length": round(own["length"], 1),
        **{name: [dict(one) for one in own[name] or ()] for name in ("patterns", "top")},
    }  # fmt: skip


def _counted(values: DataFrame) -> DataFrame:
    """Count and compare: as numbers where all values are numbers, else as texts.

    Batches are counted by Arrow: Spark would sort all values to find the least text of a column.
    """
    parts = values.select("column", "type", "value").mapInArrow(_count_batches, _PARTS)
    all_numbers = f.sum("numbers") == f.sum("values")
    least, greatest = f.min_by("least_number", "least"), f.max_by("greatest_number", "greatest")
    return parts.groupBy("column").agg(
        f.sum("values").alias("values"),
        f.sum("numbers").alias("numbers"),
        *(f.sum(f.when(f.col("type") == t, f.col("values")).otherwise(0)).alias(t) for t in _TYPES),
        f.when(all_numbers, least).otherwise(f.min("first")).alias("least"),
        f.when(all_numbers, greatest).otherwise(f.max("last")).alias("greatest"),
        (f.sum("characters") / f.sum("values")).alias("length"),
    )


def _count_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield what each batch has of each column and type."""
    for batch in batches:
        value = batch.column("value")
        number = pc.if_else(pc.match_substring_regex(value, NUMBER), value, None)
        measured = pa.table(
            {
                "column": batch.column("column"),
                "type": batch.column("type"),
                "number": number,
                "size": pc.cast(number, pa.float64()),
                "shown": pc.utf8_slice_codeunits(value, 0, _SHOWN),
                "characters": pc.utf8_length(value),
            }
        ).sort_by("size")
        # In one thread the first number is the least one.
        grouped = measured.group_by(["column", "type"], use_threads=False)
        counted = grouped.aggregate([*_MEASURES.values()])
        found = {name: counted.column("_".join(of)) for name, of in _MEASURES.items()}
        keys = {name: counted.column(name) for name in ("column", "type")}
        yield from pa.table({**keys, **found}).to_batches()


def _most(counted: DataFrame, name: str) -> DataFrame:
    """The most frequent values of each column, with the share of the sample that has them."""
    by_column = Window.partitionBy("column")
    rank = f.row_number().over(by_column.orderBy(f.desc("n"), "value")).alias("rank")
    total = f.sum("n").over(by_column)
    ranked = counted.select("column", "value", (f.col("n") / total).alias("share"), rank)
    each = f.struct("rank", "value", "share")
    best = ranked.where(f.col("rank") <= _TOP).groupBy("column")
    listed = f.array_sort(f.collect_list(each))
    without_rank = f.transform(listed, lambda one: f.struct(one["value"], one["share"]))
    return best.agg(without_rank.alias(name))


def _pattern(value: Column) -> Column:
    """The shape of a value: ``A`` for capitals, ``a`` for other words, ``9`` for digits."""
    for run, letter in _RUNS:
        value = f.regexp_replace(value, run, letter)
    return value
