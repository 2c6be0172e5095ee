"""Kept frames: the Parquet of a stage, written and read by Spark or in the process of the worker.

Spark is asked for no more than it alone can do: each of its actions has a price that does not
depend on the rows.
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

__all__ = ["frame_rows", "frame_table", "read_frame", "write_frame", "wrong_id"]

LOCAL_IDS = 65_536
"""Rows of a frame whose ids are checked in this process."""

_ROW_GROUP: Final = 8 * 2**20
"""Bytes: a page of a result is found without decoding much before it."""
_ROWS: Final = 65_536
"""Of a row group that is written without Spark."""
_SCHEMA: Final = b"org.apache.spark.sql.parquet.row.metadata"
"""Where Spark keeps its schema in a file."""


def write_frame(frame: Frame, target: Path) -> None:
    """Write a frame as Parquet, into a directory that does not exist yet."""
    if not isinstance(frame, pa.Table):
        frame.write.option("parquet.block.size", _ROW_GROUP).parquet(str(target))
        return
    target.mkdir()
    # The codec of Spark's files, which is LZ4_RAW in the format.
    pq.write_table(frame, target / "part.parquet", row_group_size=_ROWS, compression="lz4")


def read_frame(spark: SparkSession, directory: Path) -> DataFrame:
    """Read a frame by Spark: without the schema it would start a job to find it."""
    written = (pq.read_schema(_parts(directory)[0]).metadata or {}).get(_SCHEMA)
    reader = spark.read
    if written is not None:
        reader = reader.schema(StructType.fromJson(orjson.loads(written)))
    return reader.parquet(literal_path(str(directory)))


def frame_table(directory: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a frame, or some columns of it, without Spark."""
    names = None if columns is None else [*columns]
    return pa.concat_tables([pq.read_table(part, columns=names) for part in _parts(directory)])


def frame_rows(directory: Path) -> int:
    return sum(pq.read_metadata(part).num_rows for part in _parts(directory))


def wrong_id(spark: SparkSession | None, directory: Path) -> list[str | None]:
    """An id that is missing or doubled, if there is one.

    Args:
        spark: What counts those of many rows, which may be too many for this process; None: they
            fit, because it has made them.
    """
    if spark is None or frame_rows(directory) <= LOCAL_IDS:
        return _wrong_here(frame_table(directory, ["id"]))
    ids = read_frame(spark, directory).groupBy("id").count()
    wrong = ids.where(f.col("id").isNull() | (f.col("count") > 1))
    return [row["id"] for row in wrong.take(1)]


def _wrong_here(table: pa.Table) -> list[str | None]:
    counts = pc.value_counts(table.column("id"))
    ids, numbers = counts.field("values"), counts.field("counts")
    wrong = ids.filter(pc.or_(pc.is_null(ids), pc.greater(numbers, 1)))
    found: list[str | None] = wrong.slice(0, 1).to_pylist()
    return found


def _parts(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.parquet"))
