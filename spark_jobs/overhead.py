"""Spark's own time: what a stage of a run costs in which nothing is done."""

from __future__ import annotations

import shutil
from pathlib import Path
from time import monotonic
from typing import Final
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

__all__ = ["stage_overhead_s"]

_measured: Final[WeakKeyDictionary[SparkSession, float]] = WeakKeyDictionary()


def stage_overhead_s(spark: SparkSession, scratch: Path) -> float:
    """Return the seconds of a stage without work: planned, shuffled, written, and read again.

    Measured once for each session, for it follows from the cluster and its settings.

    Args:
        spark: The session; it has done something before, so that what it loads once is loaded.
        scratch: Where there is nothing yet, and tasks can write; nothing is left there.
    """
    if spark not in _measured:
        began = monotonic()
        spark.range(1).groupBy("id").count().write.parquet(str(scratch))
        spark.read.parquet(str(scratch)).count()
        _measured[spark] = monotonic() - began
        shutil.rmtree(scratch, ignore_errors=True)
    return _measured[spark]
