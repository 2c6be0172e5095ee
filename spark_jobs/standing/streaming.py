"""Standing queries as one query of Structured Streaming, with a stage for each level of hops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs.standing.chunks import REPORTS
from spark_jobs.standing.reports import Report
from spark_jobs.standing.shared_joins import SharedJoins
from spark_jobs.standing.tasks import execute, read, read_history
from spark_jobs.standing.work import Work

__all__ = ["TUPLES", "process_batch", "start"]

TUPLES: Final = "stream string, number long, time_s double, values string"
"""What is streamed: a tuple of a stream, with its feed position and its values as JSON."""

_CHUNKS: Final = "group int, level int, store int, hop int, route int, rows binary"


def start(
    joins: SharedJoins, tuples: DataFrame, trigger: Mapping[str, Any] | None = None
) -> StreamingQuery:
    """Start to execute queries over a streaming frame of `TUPLES`; its directory must be locked.

    Args:
        trigger: When batches begin, as `DataStreamWriter.trigger` takes it.
    """
    writer = tuples.writeStream.foreachBatch(partial(process_batch, joins))
    writer = writer.option("checkpointLocation", str(joins.directory.checkpoint))
    return (writer.trigger(**trigger) if trigger else writer).start()


def process_batch(joins: SharedJoins, tuples: DataFrame, batch: int) -> None:
    """Execute a batch, unless it is committed already."""
    joins.process(batch, partial(_execute, tuples), partial(_execute_history, tuples))


def _execute(tuples: DataFrame, work: Work) -> Report:
    return _reported(tuples.mapInArrow(partial(read, work), _CHUNKS), work)


def _execute_history(tuples: DataFrame, work: Work) -> Report:
    groups = tuples.sparkSession.range(0, work.parallelism, 1, work.parallelism)
    return _reported(groups.mapInArrow(partial(_read_history, work), _CHUNKS), work)


def _read_history(work: Work, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from read_history(work, batch.column("id").to_pylist())


def _reported(chunks: DataFrame, work: Work) -> Report:
    """Execute all levels, one stage for each, and add up what their tasks report."""
    for level in range(1, work.hops.levels + 1):
        exchanged = chunks.repartitionById(work.parallelism, "group")
        chunks = exchanged.mapInArrow(partial(execute, work, level), _CHUNKS)
    reports = chunks.where(chunks["level"] == REPORTS).select("rows").toArrow()
    return Report.total(reports.column("rows").to_pylist())
