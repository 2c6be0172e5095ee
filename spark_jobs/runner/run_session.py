"""The Spark session of one run: opened on first use, and interruptible."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Final, Self
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from spark_jobs.paths import literal_path
from spark_jobs.session import LazySession

__all__ = ["RunSession", "stage_overhead_s"]

_overheads_s: Final[WeakKeyDictionary[SparkSession, float]] = WeakKeyDictionary()


class RunSession:
    """The session of one run's thread; its actions carry a tag while the block runs."""

    def __init__(self, session: LazySession, tag: str) -> None:
        self._session = session
        self._tag = tag
        self._tags = ExitStack()
        self._spark: SparkSession | None = None

    @property
    def used(self) -> bool:
        return self._spark is not None

    @property
    def starting_s(self) -> float:
        """Seconds that the session took to open, in any run; 0: this run has not used it."""
        return self._session.opening_s if self.used else 0.0

    def get(self) -> SparkSession:
        """Return the session.

        Raises:
            SparkUnavailable: It cannot be opened.
        """
        if self._spark is None:
            spark = self._session.get()
            self._tags.enter_context(_interruptible(spark, self._tag))
            self._spark = spark
        return self._spark

    def interrupt(self) -> None:
        """Interrupt the current actions of the run; called by another thread."""
        if self._spark is not None:
            _interrupt(self._spark, self._tag)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._tags.__exit__(kind, error, trace)


def stage_overhead_s(spark: SparkSession, scratch: Path) -> float:
    """Return the seconds of an empty stage: planned, shuffled, written and read back.

    Measured once per session, because it depends on the cluster and its settings. The session has
    been used before, so one-time loading is not measured. `scratch` does not exist before or after.
    """
    if spark not in _overheads_s:
        start = monotonic()
        spark.range(1).groupBy("id").count().write.parquet(str(scratch))
        spark.read.parquet(literal_path(str(scratch))).count()
        _overheads_s[spark] = monotonic() - start
        shutil.rmtree(scratch, ignore_errors=True)
    return _overheads_s[spark]


@contextmanager
def _interruptible(spark: SparkSession, tag: str) -> Iterator[None]:
    """Allow `_interrupt` to stop the actions of this thread while the block runs.

    A classic session uses the context's tags: since Spark 4.1 only the thread that called
    `SparkSession.addTag` finds its tags. Spark Connect has no context, and finds its tags from
    every thread.
    """
    if is_remote():
        add, remove = spark.addTag, spark.removeTag
    else:
        context = spark.sparkContext
        # Otherwise a task that sleeps in Python is cancelled only when it wakes up.
        context.setInterruptOnCancel(True)
        add, remove = context.addJobTag, context.removeJobTag
    add(tag)
    try:
        yield
    finally:
        remove(tag)


def _interrupt(spark: SparkSession, tag: str) -> None:
    """Interrupt the current actions with a tag; later ones are not affected."""
    if is_remote():
        spark.interruptTag(tag)
    else:
        spark.sparkContext.cancelJobsWithTag(tag)
