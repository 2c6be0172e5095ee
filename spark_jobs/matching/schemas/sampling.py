"""Samples the values of all columns of a table, in one pass, with bounded size.

A column's sample has the distinct values with the least hashes, and their counts. Both tables
sample the same shared values, so an overlap is visible even among a million distinct values; and
the samples of a table's partitions merge without loss.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import mmh3
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType
from pyspark.sql.window import Window

from spark_jobs.columns import quoted
from spark_jobs.matching.schemas.elements import Element
from spark_jobs.matching.schemas.profiles import profile_of
from spark_jobs.runner.port import InputUnfit

__all__ = ["MAX_COLUMNS", "SAMPLES", "column_names", "elements_of", "sample_table"]

MAX_COLUMNS: Final = 1_000
VALUES: Final = 1_000
"""Maximum distinct values of a column's sample."""
_MAX_CHARACTERS: Final = 200
"""Maximum characters of a value that are read."""
_TOTALS: Final = -1
"""The hash of the row with a column's numbers of rows and values."""
SAMPLES: Final = pa.schema(
    [
        ("column", pa.string()),
        ("value", pa.string()),
        ("hash", pa.int64()),
        ("count", pa.int64()),
        ("rows", pa.int64()),
    ]
)
_JSON_TYPES: Final[Mapping[str, str]] = {
    "tinyint": "integer",
    "smallint": "integer",
    "int": "integer",
    "bigint": "integer",
    "float": "number",
    "double": "number",
    "boolean": "boolean",
    "array": "array",
    "map": "object",
    "struct": "object",
}


def column_names(frame: DataFrame, name: str) -> list[str]:
    """Return the matched columns: all but the id.

    Raises:
        InputUnfit: There are no columns, or too many.
    """
    columns = [column for column in frame.columns if column != "id"]
    if not columns:
        raise InputUnfit(f"{name} has no column besides its id.")
    if len(columns) > MAX_COLUMNS:
        raise InputUnfit(
            f"{name} has {len(columns):,} columns; {MAX_COLUMNS:,} are matched at most."
        )
    return columns


def sample_table(frame: DataFrame, side: str) -> DataFrame:
    """Return the sample of a table: rows `side`, `column`, `value`, `hash`, `count`, `rows`."""
    names = column_names(frame, side)
    # Generated names: Spark cannot resolve a column whose name has a dot or a backtick.
    texts = frame.select(*(_text(frame, name).alias(f"v{at}") for at, name in enumerate(names)))
    parts = texts.mapInArrow(_kernel(names), from_arrow_schema(SAMPLES))
    merged = parts.groupBy("column", "value", "hash").agg(
        f.sum("count").alias("count"), f.sum("rows").alias("rows")
    )
    rank = f.row_number().over(Window.partitionBy("column").orderBy("hash", "value"))
    sample = merged.withColumn("rank", rank).where(f.col("rank") <= VALUES + 1).drop("rank")
    return sample.select(f.lit(side).alias("side"), *sample.columns)


def _text(frame: DataFrame, name: str) -> Column:
    column = quoted(name)
    type_ = frame.schema[name].dataType
    if isinstance(type_, (StructType, ArrayType, MapType)):
        column = f.to_json(column)
    elif isinstance(type_, BinaryType):
        column = f.base64(column)
    trimmed = f.trim(f.substring(column.cast("string"), 1, _MAX_CHARACTERS))
    return f.when(trimmed != "", trimmed)


def _kernel(
    names: Sequence[str],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that samples one partition, in one pass over its batches."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = [_Part(name) for name in names]
        for batch in batches:
            for part, values in zip(parts, batch.columns, strict=True):
                part.add(values)
        for part in parts:
            if part.rows:
                yield part.batch()

    return run


class _Part:
    """The sample of one column in one partition."""

    def __init__(self, name: str) -> None:
        self.rows = 0
        self._name = name
        self._present = 0
        self._counts: dict[tuple[int, str], int] = {}

    def add(self, values: pa.Array) -> None:
        self.rows += len(values)
        self._present += len(values) - values.null_count
        value_counts = pc.value_counts(values.drop_null())
        texts, counts = (value_counts.field(name).to_pylist() for name in ("values", "counts"))
        for text, count in zip(texts, counts, strict=True):
            key = mmh3.hash64(text, signed=False)[0] >> 1, text
            self._counts[key] = self._counts.get(key, 0) + count
        if len(self._counts) > 2 * VALUES:
            self._shrink()

    def _shrink(self) -> None:
        # A value among the table's least hashes is always among each partition's least.
        smallest = heapq.nsmallest(VALUES, self._counts)
        self._counts = {key: self._counts[key] for key in smallest}

    def batch(self) -> pa.RecordBatch:
        self._shrink()
        rows = [
            {"column": self._name, "value": text, "hash": hash_, "count": count, "rows": 0}
            for (hash_, text), count in self._counts.items()
        ]
        totals = {"value": None, "hash": _TOTALS, "count": self._present, "rows": self.rows}
        return pa.RecordBatch.from_pylist([{"column": self._name, **totals}, *rows], SAMPLES)


def elements_of(frame: DataFrame, sample: DataFrame, side: str) -> list[Element]:
    """Return the columns of a table with the profiles of their samples."""
    rows = sample.where(f.col("side") == side).orderBy("column", "hash", "value").toArrow()
    values: dict[str, dict[str, int]] = {}
    totals: dict[str, tuple[int, int]] = {}
    for row in rows.to_pylist():
        if row["hash"] == _TOTALS:
            totals[row["column"]] = row["rows"], row["count"]
        else:
            values.setdefault(row["column"], {})[row["value"]] = row["count"]
    return [
        Element(
            (name,),
            _json_type(frame, name),
            profile_of(*totals.get(name, (0, 0)), values.get(name, {})),
        )
        for name in column_names(frame, side)
    ]


def _json_type(frame: DataFrame, name: str) -> str:
    return _JSON_TYPES.get(frame.schema[name].dataType.simpleString().partition("<")[0], "string")
