"""Files of records as they arrive in the directories of their owners, as one streaming query.

Spark says which files are of which batch, and repeats a batch with the same ones. They are read as
the inputs of a run are.
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

from spark_jobs.linkage.private.records import united
from spark_jobs.linkage.private.stream import LinkageStream
from spark_jobs.linkage.private.stream_state import LinkageCommit
from spark_jobs.paths import literal_path
from spark_jobs.runner.port import Input, InputUnfit
from spark_jobs.runner.specification import FileSource
from spark_jobs.sources.reading import read_files
from spark_jobs.streaming_queries import EVER, start_batches

__all__ = ["start"]

_FILES: Final = "path string, modificationTime timestamp, length long, content binary"
"""What Spark lists of files; contents are read if they are asked for."""


def start(
    linkage: LinkageStream,
    inputs: Sequence[Input],
    files: int,
    on_commit: Callable[[LinkageCommit], None],
    trigger: Mapping[str, Any] | None = None,
) -> StreamingQuery:
    """Start to link the records of files that arrive in the directories of their owners.

    Args:
        files: How many of each owner a batch has at most, the oldest first.
        on_commit: Called after each batch, and again for the last one when it is repeated.
        trigger: When batches begin, as `DataStreamWriter.trigger` takes it.

    Raises:
        InputUnfit: There is no such directory.
    """

    def process(batch: DataFrame, number: int) -> None:
        on_commit(linkage.process(number, partial(_records, linkage, inputs, batch)))

    arriving = [_arriving(linkage.session, each, files) for each in inputs]
    checkpoint = linkage.directory.checkpoint
    return start_batches(reduce(DataFrame.union, arriving), process, checkpoint, trigger)


def _arriving(session: SparkSession, input_: Input, files: int) -> DataFrame:
    """Return the paths of files as they arrive in a directory, and whose they are."""
    path = _source(input_).path
    if not Path(path).is_dir():
        raise InputUnfit(f"{input_.name}: there is no directory {path}.")
    reader = session.readStream.format("binaryFile").schema(_FILES)
    reader = reader.options(maxFilesPerTrigger=files, maxFileAge=EVER)
    return reader.load(literal_path(path)).select(f.lit(input_.name).alias("owner"), "path")


def _records(linkage: LinkageStream, inputs: Sequence[Input], files: DataFrame) -> DataFrame:
    paths: defaultdict[str, list[str]] = defaultdict(list)
    for row in files.collect():
        paths[row["owner"]].append(literal_path(row["path"]))
    frames = {
        each.name: read_files(linkage.session, each, _source(each), sorted(paths[each.name]))
        for each in inputs
        if each.name in paths
    }
    return united(frames, linkage.spec.bits, [each.name for each in inputs])


def _source(input_: Input) -> FileSource:
    assert isinstance(input_.source, FileSource)  # a job without a service has no classes
    return input_.source
