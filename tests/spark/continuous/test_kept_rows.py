"""Rows kept for later batches, many of which have none."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from mediator.continuous.statement import UNTIL
from spark_jobs.continuous import state
from spark_jobs.continuous.state import KeptRows

SCHEMA: Final = StructType([StructField("row", LongType()), StructField(UNTIL, LongType())])
FANOUT: Final = 2


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merge few folders at a time, so that there are several sizes."""
    monkeypatch.setattr(state, "_FANOUT", FANOUT)


class CheckedRows:
    """Kept rows, checked against the expected ones; a row is its number."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark, self._directory = spark, directory
        self._rows = KeptRows(spark, directory)
        self._until: dict[int, int] = {}

    def execute(self, batch: int, *until: int) -> None:
        """Execute a batch that completes the slide with its number, and keep its rows."""
        expected = {row for row, end in self._until.items() if end > batch}
        before = self._rows.before(batch, batch, SCHEMA)
        assert (set() if before is None else {row[0] for row in before.collect()}) == expected
        rows = [(len(self._until) + n, end) for n, end in enumerate(until)]
        self._rows.keep(batch, self._spark.createDataFrame(rows, SCHEMA))
        self._until.update(rows)

    @property
    def folders(self) -> int:
        return len(list(self._directory.iterdir()))


def test_a_large_folder_between_small_ones_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    rows = CheckedRows(spark, tmp_path)
    # Batches 0 and 1, 2 and 9, and 10 and 11 are merged: sizes of 2, 8 and 2.
    for batch in (0, 1, 2, 9, 10, 11, 12, 13):
        rows.execute(batch, 100)


@pytest.mark.parametrize("seed", [1, 2])
def test_rows_are_kept_until_they_expire(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    draw, rows, batch = Random(seed), CheckedRows(spark, tmp_path), 0
    for _ in range(20):
        batch += draw.choice((1, 1, 1, 2, 8, 30))
        rows.execute(batch, *(batch + draw.randrange(1, 120) for _ in range(draw.randrange(3))))
        # One folder of each size, and those of the batch.
        assert rows.folders <= 2 + batch.bit_length()


def test_folders_of_sparse_batches_are_merged(spark: SparkSession, tmp_path: Path) -> None:
    rows = CheckedRows(spark, tmp_path)
    for batch in range(0, 16 * 64, 64):
        rows.execute(batch, 10_000)
    assert rows.folders <= 6


def test_a_directory_is_not_a_glob_pattern(spark: SparkSession, tmp_path: Path) -> None:
    rows = CheckedRows(spark, tmp_path / "run[1]{a,b}*?")
    for batch in range(4):
        rows.execute(batch, 100)
