"""A disk that is full: the run fails and says so, nothing of it is half there, and it goes on.

No process may write files longer than a few bytes: what the system answers half way through is
what it answers on a full disk, but for the number (`EFBIG` instead of `ENOSPC`).
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from spark_jobs.runner.conformance import Trial, run_trial
from spark_jobs.runner.control import Control
from spark_jobs.runner.execution import Run
from spark_jobs.runner.run_directory import RunDirectory
from spark_jobs.sources.reading import read_input

ROOM = 100
"""Bytes: less than any Parquet file, and than any manifest with two stages, has."""


def spark_processes() -> list[int]:
    """The JVM of the session, and what it has started."""
    children = psutil.Process().children()  # embedded servers in Java are among them
    (jvm,) = [child for child in children if "pyspark-shell" in child.cmdline()]
    return [jvm.pid, *(child.pid for child in jvm.children(recursive=True))]


def this_process() -> list[int]:
    """The planner: it writes the manifests."""
    return [psutil.Process().pid]


class FillingControl(Control):
    """The disk is full from the beginning of a stage on."""

    def __init__(self, stage: str, writers: list[int]) -> None:
        super().__init__()
        self._victim = stage
        self._writers = writers

    def begin(self, name: str) -> None:
        super().begin(name)
        if name == self._victim:
            allow(self._writers, ROOM)


def allow(processes: list[int], size: int) -> None:
    """Let processes write files of so many bytes at most."""
    for pid in processes:
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))


@contextmanager
def room_again(processes: list[int]) -> Iterator[None]:
    try:
        yield
    finally:
        allow(processes, resource.RLIM_INFINITY)


@pytest.mark.parametrize(
    ("stage", "writers"),
    [("read records", spark_processes), ("count", spark_processes), ("forecast", this_process)],
)
def test_a_full_disk_ends_a_run_which_goes_on_when_there_is_room(
    spark: SparkSession, tmp_path: Path, stage: str, writers: Callable[[], list[int]]
) -> None:
    people = tmp_path / "people.csv"
    people.write_text("id,city\n" + "".join(f"{n},c{n % 7}\n" for n in range(100)))
    trial = Trial("example.count", {"records": {"file": str(people)}, "field": "city"})
    # Before there is no room: Spark unpacks libraries when it first writes, and tries only once.
    expected = run_trial(trial, spark, RunDirectory(tmp_path / "whole"))
    full = writers()
    control = FillingControl(stage, full)
    with room_again(full):
        run = Run(trial.job, RunDirectory(tmp_path / "run"), spark, read_input, control)
        ending = run.carry_out()
    assert ending.state == "failed", ending
    assert "The disk is full" in ending.reasons[0]
    assert ending.result is None
    assert stage not in RunDirectory(tmp_path / "run").stages
    assert run_trial(trial, spark, RunDirectory(tmp_path / "run")) == expected
