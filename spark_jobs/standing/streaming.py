"""Standing queries as one query of Structured Streaming, with a stage for each level of hops."""

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
from spark_jobs.streaming_queries import EVER, start_batches

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
        on_commit: Called after each batch, and again for the last one when it is repeated.
        trigger: When batches begin, as `DataStreamWriter.trigger` takes it.
    """

    def process(batch: DataFrame, number: int) -> None:
        on_commit(joins.process(number, partial(_execute, batch), partial(_execute_history, batch)))

    return start_batches(tuples, process, joins.directory.checkpoint, trigger)


def file_tuples(session: SparkSession, folder: Path, format_: str, files: int) -> DataFrame:
    """Return the tuples of a directory as they come, so many files at a time, the oldest first."""
    reader = session.readStream.schema(from_arrow_schema(TUPLES))
    reader = reader.options(maxFilesPerTrigger=files, maxFileAge=EVER)
    # A line that is no tuple must end the query: it would be a tuple without values otherwise.
    return reader.option("mode", "FAILFAST").format(format_).load(literal_path(str(folder)))


def event_stream_tuples(
    session: SparkSession,
    database: str,
    streams: Sequence[str],
    most: int | None = None,
    consumer: str | None = None,
) -> DataFrame:
    """Return the tuples of event streams of a database, from the oldest that are kept on.

    Args:
        streams: Their names.
        most: Of each stream in a batch; None: all that there are.
        consumer: The name under which each of them knows the reader; None: it does not.
    """
    session.dataSource.register(StreamData)
    options = {"database": database, "maxPerTrigger": most, "consumer": consumer}
    reader = session.readStream.format(StreamData.name())
    reader = reader.options(**{name: each for name, each in options.items() if each is not None})
    return reduce(DataFrame.union, [reader.option("stream", each).load() for each in streams])


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
