"""Interrupts, from one thread, what another does on Spark.

In a session of our own the tags are the context's: since Spark 4.1 those of `SparkSession.addTag`
are found by the thread that added them alone. Spark Connect has no context, and finds its tags
from everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

__all__ = ["interrupt", "interruptible"]


@contextmanager
def interruptible(spark: SparkSession, tag: str) -> Iterator[None]:
    """Let `interrupt` stop the actions of this thread while the block runs."""
    if is_remote():
        add, remove = spark.addTag, spark.removeTag
    else:
        context = spark.sparkContext
        # Else a task that sleeps in Python is cancelled when it wakes up.
        context.setInterruptOnCancel(True)
        add, remove = context.addJobTag, context.removeJobTag
    add(tag)
    try:
        yield
    finally:
        remove(tag)


def interrupt(spark: SparkSession, tag: str) -> None:
    """Interrupt the actions under way with a tag; later ones are not hindered."""
    if is_remote():
        spark.interruptTag(tag)
    else:
        spark.sparkContext.cancelJobsWithTag(tag)
