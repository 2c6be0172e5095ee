"""Reads inputs: classes, and files as CSV with a header, JSON lines, or Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from spark_jobs.columns import quoted
from spark_jobs.paths import literal_path
from spark_jobs.runner.port import Input, InputUnfit
from spark_jobs.runner.specification import FileSource
from spark_jobs.sources.classes import read_class
from spark_jobs.sources.tables import names_in_job, requested_fields

__all__ = ["read_files", "read_input"]

_OPTIONS: Final[dict[str, dict[str, str]]] = {
    # RFC 4180: quotes are doubled, and a quoted value can have line ends. Malformed records fail.
    "csv": {"header": "true", "escape": '"', "multiLine": "true", "mode": "FAILFAST"},
    "json": {"mode": "FAILFAST"},
    "parquet": {},
}


def read_input(spark: SparkSession, input_: Input) -> DataFrame:
    """Read an input: `id` and the requested fields.

    Raises:
        InputUnfit: It is missing, or lacks requested fields.
    """
    match input_.source:
        case FileSource() as source:
            return read_files(spark, input_, source, [literal_path(source.path)])
        case source:
            return read_class(spark, input_, source)


def read_files(
    spark: SparkSession, input_: Input, source: FileSource, paths: Sequence[str]
) -> DataFrame:
    """Read files: the requested fields, and `id` as a string; all fields of CSV are strings.

    Args:
        paths: Paths from `literal_path`.

    Raises:
        InputUnfit: One is missing, cannot be read, or lacks columns.
    """
    reader = spark.read.options(**_OPTIONS[source.format])
    if len(paths) > 1:
        # For Parquet: otherwise one file determines all columns, and text can be read as binary.
        reader = reader.option("mergeSchema", "true")
    try:
        if source.format == "csv" and any("\\" in path for path in paths):
            reader = reader.schema(_header(spark, paths))
        frame = reader.format(source.format).load(list(paths))
        columns = frame.columns
    except AnalysisException as error:
        raise InputUnfit(f"{input_.name}: {source.path} cannot be read.") from error
    except PySparkException as error:
        raise InputUnfit(f"{input_.name}: {source.path} is not {source.format}.") from error
    if source.rename:
        columns = names_in_job(input_, columns)
        frame = frame.toDF(*columns)
    return frame.select(*_selection(input_, columns))


def _header(spark: SparkSession, paths: Sequence[str]) -> StructType:
    """Return the columns of CSV, whose header has no line ends.

    With `multiLine`, Spark's inference treats each path that matched a pattern as a pattern again.
    """
    options = {**_OPTIONS["csv"], "multiLine": "false"}
    return spark.read.options(**options).format("csv").load(list(paths)).schema


def _selection(input_: Input, columns: list[str]) -> list[Column]:
    if not input_.identified and input_.fields is None:
        return [quoted(name) for name in columns]
    fields = requested_fields(input_, columns)
    # Quoted, because a dot in a name would otherwise select a member of a structure.
    return [quoted("id").cast("string").alias("id"), *map(quoted, fields)]
