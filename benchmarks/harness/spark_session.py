"""Spark for benchmarks: two cores of this machine, opened as by the worker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

from spark_jobs.session import SparkOptions, open_session

__all__ = ["CORES", "opened_session"]

CORES: Final = 2
_CONF: Final = {"spark.driver.memory": "4g", "spark.sql.shuffle.partitions": "4"}


@contextmanager
def opened_session(conf: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Open a session, and stop it after the block; `conf` overrides settings of Spark."""
    session = open_session(SparkOptions(f"local[{CORES}]", {**_CONF, **(conf or {})}))
    try:
        yield session
    finally:
        session.stop()
