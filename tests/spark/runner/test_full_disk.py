"""A full disk: the run fails with that reason, leaves no incomplete result, and can resume."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from pyspark.sql import SparkSession

from spark_jobs.runner.attempt import RunAttempt
from spark_jobs.runner.conformance import SampleJob, run_sample
from spark_jobs.runner.control import Control
from spark_jobs.runner.run_directory import RunDirectory
from spark_jobs.session import LazySession
from spark_jobs.sources.reading import read_input
from tests.spark.disk_limit import LIMIT, allow, restored_limit, spark_processes, this_process


class FillingControl(Control):
    """Fills the disk when a stage starts."""

    def __init__(self, stage: str, writers: list[int]) -> None:
        super().__init__()
        self._stage = stage
        self._writers = writers

    def start(self, name: str) -> None:
        super().start(name)
        if name == self._stage:
            allow(self._writers, LIMIT)


@pytest.mark.parametrize(
    ("stage", "writers"),
    [("read records", spark_processes), ("count", spark_processes), ("forecast", this_process)],
)
def test_a_full_disk_fails_a_run_which_resumes_once_there_is_space(
    spark: SparkSession, tmp_path: Path, stage: str, writers: Callable[[], list[int]]
) -> None:
    people = tmp_path / "people.csv"
    people.write_text("id,city\n" + "".join(f"{n},c{n % 7}\n" for n in range(100)))
    sample = SampleJob("example.count", {"records": {"file": str(people)}, "field": "city"})
    expected = run_sample(sample, spark, RunDirectory(tmp_path / "whole"))
    pids = writers()
    control = FillingControl(stage, pids)
    with restored_limit(pids):
        run = RunAttempt(
            sample.job, RunDirectory(tmp_path / "run"), LazySession.of(spark), read_input, control
        )
        ending = run.execute()
    assert ending.state == "failed", ending
    assert "The disk is full" in ending.reasons[0]
    assert ending.result is None
    assert stage not in RunDirectory(tmp_path / "run").stages
    assert run_sample(sample, spark, RunDirectory(tmp_path / "run")) == expected


@pytest.mark.large  # two Spark sessions start
@pytest.mark.timeout(300)
def test_a_full_disk_at_the_first_write_breaks_no_session(tmp_path: Path) -> None:
    """The JVM cannot retry unpacking a codec, and the run reports that; ours needs no unpacking."""
    command = [sys.executable, "-m", "tests.spark.first_write", str(tmp_path)]
    process = subprocess.run(command, capture_output=True, check=True)
    first, retried, unpacked, retried_unpacked = orjson.loads(process.stdout)
    assert (first["state"], first["spoilt"]) == ("failed", False)
    assert "The disk is full" in first["reasons"][0]
    assert retried["state"] == "done"
    for ending in (unpacked, retried_unpacked):
        assert (ending["state"], ending["spoilt"]) == ("failed", True)
        assert "could not unpack a library" in ending["reasons"][0]
