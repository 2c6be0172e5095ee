"""How many tasks a session's cluster carries out at the same time."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

__all__ = ["slots_of"]

_ROWS: Final = 2**16
"""More than any cluster has cores, so that no partition is empty."""


@lru_cache(maxsize=8)
def slots_of(spark: SparkSession) -> int:
    """Return the cores of the session's cluster, or of this machine where that is the cluster.

    Asked once: it is the number of partitions that Spark divides a range into, which follows the
    cores of all executors. `SparkContext.defaultParallelism` is the same, but not over Connect.
    """
    partitions = spark.range(_ROWS).select(f.spark_partition_id().alias("partition"))
    return partitions.distinct().count()
