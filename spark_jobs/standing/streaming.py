"""Standing queries as one Structured Streaming query, with a stage for each level of hops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs.paths import literal_path
from spark_jobs.sources.stream_ranges import TUPLES
from spark_jobs.sources.streams import StreamData
from spark_jobs.standing.chunks import CHUNKS, REPORTS
from spark_jobs.standing.commits import Commit
from spark_jobs.standing.reports import Report
from spark_jobs.standing.shared_joins import SharedJoins
from spark_jobs.standing.tasks import execute, read, read_history
from spark_jobs.standing.work import Work
from spark_jobs.streaming_queries import UNLIMITED_AGE, start_batches

__all__ = ["event_stream_tuples", "file_tuples", "start"]

_CHUNKS: Final = from_arrow_schema(CHUNKS)


def start(
    joins: SharedJoins,
    tuples: DataFrame,
    on_commit: Callable[[Commit], None],
    trigger: Mapping[str, Any] | None = None,
) -> StreamingQuery:
    """Start to execute queries over a streaming frame of `TUPLES`; its directory must be locked.

    Args:
        on_commit: Called after each batch, and again when the last batch is repeated.
        trigger: When batches start; the arguments of `DataStreamWriter.trigger`.
    """

    def process(batch: DataFrame, number: int) -> None:
        on_commit(joins.process(number, partial(_execute, batch), partial(_execute_history, batch)))

    return start_batches(tuples, process, joins.directory.checkpoint, trigger)


def file_tuples(session: SparkSession, folder: Path, format_: str, files: int) -> DataFrame:
    """Return the tuples of a directory as they arrive, `files` at a time, the oldest first."""
    reader = session.readStream.schema(from_arrow_schema(TUPLES))
    reader = reader.options(maxFilesPerTrigger=files, maxFileAge=UNLIMITED_AGE)
    # A malformed line must end the query: otherwise it would be a tuple without values.
    return reader.option("mode", "FAILFAST").format(format_).load(literal_path(str(folder)))


def event_stream_tuples(
    session: SparkSession,
    database: str,
    streams: Sequence[str],
    max_tuples: int | None = None,
    consumer: str | None = None,
) -> DataFrame:
    """Return the tuples of event streams of a database, from the oldest stored ones on.

    Args:
        streams: The names of the streams.
        max_tuples: Maximum tuples of each stream in a batch; None: all available.
        consumer: The reader's name as a consumer of each stream; None: it is not a consumer.
    """
    session.dataSource.register(StreamData)
    options = {"database": database, "maxPerTrigger": max_tuples, "consumer": consumer}
    reader = session.readStream.format(StreamData.name())
    reader = reader.options(**{name: value for name, value in options.items() if value is not None})
    return reduce(DataFrame.union, [reader.option("stream", name).load() for name in streams])


def _execute(tuples: DataFrame, work: Work) -> Report:
    return _run_levels(tuples.mapInArrow(partial(read, work), _CHUNKS), work)


def _execute_history(tuples: DataFrame, work: Work) -> Report:
    groups = tuples.sparkSession.range(0, work.parallelism, 1, work.parallelism)
    return _run_levels(groups.mapInArrow(partial(_read_history, work), _CHUNKS), work)


def _read_history(work: Work, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from read_history(work, batch.column("id").to_pylist())


def _run_levels(chunks: DataFrame, work: Work) -> Report:
    """Execute all levels, one stage each, and add up the reports of their tasks."""
    for level in range(1, work.hops.levels + 1):
        exchanged = chunks.repartitionById(work.parallelism, "group")
        chunks = exchanged.mapInArrow(partial(execute, work, level), _CHUNKS)
    reports = chunks.where(chunks["level"] == REPORTS).select("rows").toArrow()
    return Report.total(reports.column("rows").to_pylist())
