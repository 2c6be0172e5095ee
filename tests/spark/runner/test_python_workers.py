"""Spark's Python workers: the fixed cost of a task."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from zipimport import zipimporter

import pyarrow as pa
from pyspark.sql import SparkSession


def _archives(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass
    importers = sys.path_importer_cache.items()
    archives = [path for path, importer in importers if isinstance(importer, zipimporter)]
    yield pa.RecordBatch.from_pydict({"archive": pa.array(archives, pa.string())})


def test_tasks_import_nothing_from_archives_which_each_task_would_index(
    spark: SparkSession,
) -> None:
    assert spark.range(0, 1, 1, 1).mapInArrow(_archives, "archive string").collect() == []
