"""Stored frames: Spark or this process writes them, and either reads them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark_jobs.runner import frames
from spark_jobs.runner.frames import frame_rows, frame_table, invalid_id, read_frame, write_frame

ROW = "named_struct('x', cast(1.50 as decimal(9, 2)), 'l', array(timestamp '2026-01-01')) AS `a b`"


def jobs(spark: SparkSession) -> int:
    """Return the number of jobs that the session has started."""
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))


def test_a_frame_of_spark_is_read_as_written_without_a_job_for_its_schema(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.range(3).selectExpr("id", "cast(id AS string) AS s", ROW)
    write_frame(frame, tmp_path / "kept")
    before = jobs(spark)
    read = read_frame(spark, tmp_path / "kept")
    assert jobs(spark) == before
    assert read.schema == spark.read.parquet(str(tmp_path / "kept")).schema
    assert jobs(spark) > before, "otherwise this test cannot count the session's jobs"
    assert sorted(read.collect()) == sorted(frame.collect())


def test_a_table_of_this_process_is_read_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    rows = [{"id": "1", "n": [1, 2]}, {"id": "2", "n": None}]
    write_frame(pa.Table.from_pylist(rows), tmp_path / "kept")
    assert [row.asDict() for row in read_frame(spark, tmp_path / "kept").collect()] == rows
    assert frame_table(tmp_path / "kept", ["id"]).to_pylist() == [{"id": "1"}, {"id": "2"}]
    assert frame_rows(tmp_path / "kept") == len(rows)


@pytest.mark.parametrize("max_local_ids", [0, 10], ids=["by spark", "here"])
@pytest.mark.parametrize(
    ("ids", "invalid"), [("'a', 'b', 'a'", ["a"]), ("'a', null", [None]), ("'a', 'b'", [])]
)
def test_missing_and_duplicate_ids_are_found(
    max_local_ids: int,
    ids: str,
    invalid: list[str | None],
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frames, "LOCAL_IDS", max_local_ids)
    write_frame(spark.sql(f"SELECT explode(array({ids})) AS id"), tmp_path / "kept")
    before = jobs(spark)
    assert invalid_id(spark, tmp_path / "kept") == invalid
    assert (jobs(spark) > before) is (max_local_ids == 0)


def test_a_directory_is_not_a_glob_pattern(spark: SparkSession, tmp_path: Path) -> None:
    for name, id_ in (("run1", "other"), (r"run[1]{a,b}*?", "own")):
        (tmp_path / name).mkdir()
        write_frame(pa.table({"id": [id_]}), tmp_path / name / "kept")
    frame = tmp_path / r"run[1]{a,b}*?" / "kept"
    assert [row["id"] for row in read_frame(spark, frame).collect()] == ["own"]
