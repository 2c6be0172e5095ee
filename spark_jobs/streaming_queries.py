"""Starts Structured Streaming queries whose batches a function processes, and awaits their end."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs.runner.failures import reason_of

__all__ = ["UNLIMITED_AGE", "Failed", "end", "start_batches"]

UNLIMITED_AGE: Final = "36500d"
"""The `maxFileAge` of files: Spark silently skips files that are this much older than the latest
one; by default a week."""


class Failed(Exception):
    """A query failed; names the reason. The next query continues after the last commit."""


_OWN_ERROR: Final = re.compile(r"StateMismatch: ([^\n]{1,1000})")
"""Portolan's own error in a traceback that Spark passes on as text."""


def start_batches(
    frame: DataFrame,
    process: Callable[[DataFrame, int], None],
    checkpoint: Path,
    trigger: Mapping[str, Any] | None = None,
) -> StreamingQuery:
    """Start a query over a streaming frame.

    Args:
        process: Called with each batch and its id, and again when a batch is repeated.
        checkpoint: The directory in which Spark stores the offsets of batches.
        trigger: When batches start; the arguments of `DataStreamWriter.trigger`.
    """
    writer = frame.writeStream.foreachBatch(process).option("checkpointLocation", str(checkpoint))
    return (writer.trigger(**trigger) if trigger else writer).start()


def end(query: StreamingQuery) -> None:
    """Wait until a query ends; an interruption stops it.

    Raises:
        Failed: It failed.
    """
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        text = str(error)
        if match := _OWN_ERROR.search(text):
            raise Failed(match[1]) from None
        raise Failed(reason_of(error)) from error
    finally:
        query.stop()
