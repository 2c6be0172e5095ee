"""Stored frames: the Parquet of a stage, written and read by Spark or in the worker's process.

Spark does only the work that needs it: each action has a fixed cost, whatever the number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from spark_jobs.paths import literal_path
from spark_jobs.runner.port import Frame

__all__ = ["frame_rows", "frame_table", "invalid_id", "read_frame", "write_frame"]

LOCAL_IDS = 65_536
"""Maximum rows of a frame whose ids are checked in this process."""

_ROW_GROUP_BYTES: Final = 8 * 2**20
"""Bytes of a row group; small, so that a page of a result decodes few rows before it."""
_ROW_GROUP_ROWS: Final = 65_536
"""Rows of a row group written without Spark."""
_SCHEMA_KEY: Final = b"org.apache.spark.sql.parquet.row.metadata"
"""The metadata key under which Spark stores its schema in a file."""


def write_frame(frame: Frame, target: Path) -> None:
    """Write a frame as Parquet, into a directory that does not exist yet."""
    if not isinstance(frame, pa.Table):
        frame.write.option("parquet.block.size", _ROW_GROUP_BYTES).parquet(str(target))
        return
    target.mkdir()
    # Spark's codec: LZ4_RAW in the format.
    pq.write_table(
        frame, target / "part.parquet", row_group_size=_ROW_GROUP_ROWS, compression="lz4"
    )


def read_frame(spark: SparkSession, directory: Path) -> DataFrame:
    """Read a frame by Spark, with its schema: without it Spark starts a job to infer it."""
    schema = (pq.read_schema(_part_files(directory)[0]).metadata or {}).get(_SCHEMA_KEY)
    reader = spark.read
    if schema is not None:
        reader = reader.schema(StructType.fromJson(orjson.loads(schema)))
    return reader.parquet(literal_path(str(directory)))


def frame_table(directory: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a frame, or some columns of it, without Spark."""
    names = None if columns is None else [*columns]
    return pa.concat_tables([pq.read_table(part, columns=names) for part in _part_files(directory)])


def frame_rows(directory: Path) -> int:
    return sum(pq.read_metadata(part).num_rows for part in _part_files(directory))


def invalid_id(spark: SparkSession | None, directory: Path) -> list[str | None]:
    """Return a missing or duplicate id, if any.

    Args:
        spark: Counts the ids of large frames, which may not fit into this process; None: they fit,
            because this process built the frame.
    """
    if spark is None or frame_rows(directory) <= LOCAL_IDS:
        return _invalid_in_table(frame_table(directory, ["id"]))
    ids = read_frame(spark, directory).groupBy("id").count()
    invalid = ids.where(f.col("id").isNull() | (f.col("count") > 1))
    return [row["id"] for row in invalid.take(1)]


def _invalid_in_table(table: pa.Table) -> list[str | None]:
    counts = pc.value_counts(table.column("id"))
    ids, numbers = counts.field("values"), counts.field("counts")
    invalid = ids.filter(pc.or_(pc.is_null(ids), pc.greater(numbers, 1)))
    first: list[str | None] = invalid.slice(0, 1).to_pylist()
    return first


def _part_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.parquet"))
