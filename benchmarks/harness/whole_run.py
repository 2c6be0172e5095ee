"""A run of a job on files, executed here as by a worker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from app.commands.demo.failed import Failed
from spark_jobs.runner.attempt import RunAttempt
from spark_jobs.runner.control import Control
from spark_jobs.runner.job import parse_job
from spark_jobs.runner.results import ResultFiles
from spark_jobs.runner.run_directory import RunDirectory
from spark_jobs.session import LazySession
from spark_jobs.sources.reading import read_input
from spark_jobs.sources.tables import read_table

__all__ = ["WholeRun", "whole_run"]


class WholeRun(NamedTuple):
    """A finished run: its directory, its result, and its seconds from start to result."""

    directory: RunDirectory
    result: ResultFiles
    seconds: float


def whole_run(kind: str, spec: Mapping[str, Any], folder: Path, session: LazySession) -> WholeRun:
    """Execute a job, keeping its stages in a folder.

    Raises:
        Failed: It has no result.
    """
    job, directory = parse_job({"kind": kind, "spec": spec}), RunDirectory(folder)
    attempt = RunAttempt(job, directory, session, read_input, Control(), read_table=read_table)
    started = perf_counter()
    outcome = attempt.execute()
    seconds = perf_counter() - started
    if outcome.result is None:
        raise Failed(f"the run ended as {outcome.state}: {' '.join(outcome.reasons)}")
    return WholeRun(directory, ResultFiles(directory.frame(outcome.result)), seconds)
