"""Reads files of records that arrive in the directories of their owners, by one streaming query.

Spark assigns files to batches, and repeats a batch with the same files. They are read like the
inputs of a run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs.linkage.private.records import unite
from spark_jobs.linkage.private.stream import LinkageStream
from spark_jobs.linkage.private.stream_state import LinkageCommit
from spark_jobs.paths import literal_path
from spark_jobs.runner.port import Input, InputUnfit
from spark_jobs.runner.specification import FileSource
from spark_jobs.sources.reading import read_files
from spark_jobs.streaming_queries import UNLIMITED_AGE, start_batches

__all__ = ["start"]

_FILES: Final = "path string, modificationTime timestamp, length long, content binary"
"""Spark's columns of files; contents are read only if selected."""


def start(
    linkage: LinkageStream,
    inputs: Sequence[Input],
    files: int,
    on_commit: Callable[[LinkageCommit], None],
    trigger: Mapping[str, Any] | None = None,
) -> StreamingQuery:
    """Start to link the records of files that arrive in the directories of their owners.

    Args:
        files: Maximum files of each owner in a batch, the oldest first.
        on_commit: Called after each batch, and again when the last batch is repeated.
        trigger: When batches start; the arguments of `DataStreamWriter.trigger`.

    Raises:
        InputUnfit: A directory does not exist.
    """

    def process(batch: DataFrame, number: int) -> None:
        on_commit(linkage.process(number, partial(_records, linkage, inputs, batch)))

    streams = [_new_files(linkage.session, input_, files) for input_ in inputs]
    checkpoint = linkage.directory.checkpoint
    return start_batches(reduce(DataFrame.union, streams), process, checkpoint, trigger)


def _new_files(session: SparkSession, input_: Input, files: int) -> DataFrame:
    """Return the paths of files that arrive in a directory, with their owner."""
    path = _source(input_).path
    if not Path(path).is_dir():
        raise InputUnfit(f"{input_.name}: there is no directory {path}.")
    reader = session.readStream.format("binaryFile").schema(_FILES)
    reader = reader.options(maxFilesPerTrigger=files, maxFileAge=UNLIMITED_AGE)
    return reader.load(literal_path(path)).select(f.lit(input_.name).alias("owner"), "path")


def _records(linkage: LinkageStream, inputs: Sequence[Input], files: DataFrame) -> DataFrame:
    paths: defaultdict[str, list[str]] = defaultdict(list)
    for row in files.collect():
        paths[row["owner"]].append(literal_path(row["path"]))
    frames = {
        input_.name: read_files(
            linkage.session, input_, _source(input_), sorted(paths[input_.name])
        )
        for input_ in inputs
        if input_.name in paths
    }
    return unite(frames, linkage.spec.bits, [input_.name for input_ in inputs])


def _source(input_: Input) -> FileSource:
    assert isinstance(input_.source, FileSource)  # a job without a service has no classes
    return input_.source
