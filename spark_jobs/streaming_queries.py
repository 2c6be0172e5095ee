"""Queries of Structured Streaming whose batches are processed here: how they begin and end."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs.runner.failures import reason_of

__all__ = ["EVER", "Failed", "end", "start_batches"]

EVER: Final = "36500d"
"""The `maxFileAge` of files: Spark leaves out, and says nothing of, those whose times are that much
before the latest one's; a week if nothing is said."""


class Failed(Exception):
    """A query has ended, and why; what was committed is kept, and goes on with the next one."""


_OWN: Final = re.compile(r"StateMismatch: ([^\n]{1,1000})")
"""What is raised here, and carried through Spark as text."""


def start_batches(
    frame: DataFrame,
    process: Callable[[DataFrame, int], None],
    checkpoint: Path,
    trigger: Mapping[str, Any] | None = None,
) -> StreamingQuery:
    """Start a query over a streaming frame.

    Args:
        process: Called with each batch and its id, and again with one that is repeated.
        checkpoint: Where Spark keeps which rows are of which batch.
        trigger: When batches begin, as `DataStreamWriter.trigger` takes it.
    """
    writer = frame.writeStream.foreachBatch(process).option("checkpointLocation", str(checkpoint))
    return (writer.trigger(**trigger) if trigger else writer).start()


def end(query: StreamingQuery) -> None:
    """Wait until a query ends; it is stopped if this is interrupted.

    Raises:
        Failed: It failed.
    """
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        text = str(error)
        if own := _OWN.search(text):
            raise Failed(own[1]) from None
        raise Failed(reason_of(error)) from error
    finally:
        query.stop()
