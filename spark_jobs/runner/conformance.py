"""What every kind of job must keep to, as checks that its tests call: ours, and those of plug-ins.

    TRIAL = Trial("example.count", {"records": {"file": "people.csv"}, "field": "city"})

    def test_it_conforms(spark, tmp_path):
        check_kind(TRIAL, spark, tmp_path)

The trial should be small: each of its stages is carried out four times. Mark the test
``pytest.mark.connect``, and it is also run over Spark Connect.
"""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from spark_jobs.runner.control import Control
from spark_jobs.runner.execution import FORECAST, Ending, InputReader, Run
from spark_jobs.runner.job import Job, read_job
from spark_jobs.runner.local import conduct
from spark_jobs.runner.port import SpecInvalid
from spark_jobs.runner.results import ResultFiles
from spark_jobs.runner.run_directory import KeptStage, RunDirectory
from spark_jobs.sources.reading import read_input

__all__ = [
    "Trial",
    "check_hostile_specs",
    "check_interrupted",
    "check_kind",
    "check_spec",
    "result_lines",
    "run_trial",
]

_MOMENTS: Final = ("before", "after")
"""Of a kill, as the commit of a stage sees it."""

_HOSTILE: Final[Sequence[Any]] = (
    None, True, -1, 0, 10**30, 1.5, float("nan"), float("inf"), "", "\0", "x" * 5_000,
    "'; DROP TABLE runs; --", "${jndi:ldap://x}", [], {}, [[]], [None], {"": {}}, {"file": 7},
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Trial:
    """A small job with which a kind is tried.

    Attributes:
        kind: The kind's name.
        spec: A specification that works; its sources are files.
        ordered: Whether the order of the result's rows is part of it.
    """

    kind: str
    spec: Mapping[str, Any]
    ordered: bool = False

    @property
    def document(self) -> dict[str, Any]:
        """The job as JSON."""
        return {"kind": self.kind, "spec": copy.deepcopy(dict(self.spec))}

    @property
    def job(self) -> Job:
        """The job."""
        return read_job(self.document)


def check_kind(trial: Trial, spark: SparkSession, scratch: Path) -> None:
    """Check everything; `scratch` is an empty directory."""
    check_spec(trial)
    check_hostile_specs(trial)
    check_interrupted(trial, spark, scratch)


def check_spec(trial: Trial) -> None:
    """A specification means the same after a journey as JSON, and is not changed by reading."""
    document = trial.document
    job = read_job(document)
    assert document == trial.document, "parse changed the document"
    again = read_job(json.loads(json.dumps(document)))
    assert again.spec == job.spec, "the specification does not survive a journey as JSON"
    names = [wanted.name for wanted in job.inputs]
    stages = [stage.name for stage in job.stages]
    assert stages, "a kind has one stage at least"
    assert len({*names}) == len(names), "two inputs have one name"
    assert len({*stages}) == len(stages), "two stages have one name"
    assert stages == [stage.name for stage in again.stages]


def check_hostile_specs(trial: Trial) -> None:
    """Rubbish anywhere in a specification is refused with its place, or means something."""
    for spoiled in _spoiled(dict(trial.spec)):
        try:
            read_job({"kind": trial.kind, "spec": spoiled})
        except SpecInvalid as error:
            assert error.pointer == "" or error.pointer.startswith("/spec"), error  # noqa: PT017
            assert error.reason, "a refusal without a reason"  # noqa: PT017


def check_interrupted(trial: Trial, spark: SparkSession, scratch: Path) -> None:
    """Interrupted at every stage, again and again, it comes to the same result.

    Each stage is cancelled as it begins, killed before its commit, and killed after it; whoever
    resumes goes on behind what was finished.
    """
    expected = run_trial(trial, spark, RunDirectory(scratch / "whole"))
    path = scratch / "interrupted"
    for stage in _stages(trial.job):
        control = _CancellingControl(stage)
        run = Run(trial.job, RunDirectory(path), spark, read_input, control)
        ending = conduct(run, control, lambda: None)
        assert ending.state == "cancelled", (stage, ending)
        for moment in _MOMENTS:
            directory = _DyingDirectory(path, stage, moment)
            try:
                run_trial(trial, spark, directory)
            except _Killed:
                pass
            else:
                raise AssertionError(f"the run was not killed at {stage}")
            assert (stage in RunDirectory(path).stages) is (moment == "after"), stage
    assert run_trial(trial, spark, RunDirectory(path)) == expected


def run_trial(
    trial: Trial, spark: SparkSession, directory: RunDirectory, read: InputReader = read_input
) -> list[str]:
    """Carry out a trial, and return the rows of its result as lines of JSON."""
    job = trial.job
    ending = Run(job, directory, spark, read, Control()).carry_out()
    lines = result_lines(directory, ending, ordered=trial.ordered)
    columns = ResultFiles(directory.frame(job.stages[-1].name)).columns
    assert columns == job.columns, "the result has other columns than the kind says"
    return lines


def result_lines(directory: RunDirectory, ending: Ending, *, ordered: bool) -> list[str]:
    """Return the rows of a result as lines of JSON; sorted, unless their order counts."""
    assert ending.state == "done", ending
    assert ending.result is not None
    lines = b"".join(ResultFiles(directory.frame(ending.result)).stream("json")).decode()
    rows = lines.splitlines()
    assert len(rows) == ending.rows
    return rows if ordered else sorted(rows)


def _stages(job: Job) -> list[str]:
    reading = [f"read {wanted.name}" for wanted in job.inputs]
    return [*reading, FORECAST, *(stage.name for stage in job.stages)]


def _spoiled(document: Any) -> Iterator[Any]:
    """Yield the document with rubbish in each place, without each member, and with one more."""
    yield from _HOSTILE
    if isinstance(document, dict):
        yield document | {"no such member": 1}
        for name, value in document.items():
            yield {other: kept for other, kept in document.items() if other != name}
            for spoiled in _spoiled(value):
                yield document | {name: spoiled}
    if isinstance(document, list):
        for index, value in enumerate(document):
            for spoiled in _spoiled(value):
                yield [*document[:index], spoiled, *document[index + 1 :]]


class _Killed(BaseException):
    """Stands for SIGKILL: nobody catches it, nobody cleans up."""


class _DyingDirectory(RunDirectory):
    def __init__(self, path: Path, stage: str, moment: str) -> None:
        super().__init__(path)
        self._victim = stage
        self._moment = moment

    def commit(self, name: str, stage: KeptStage) -> None:
        if name != self._victim:
            super().commit(name, stage)
            return
        if self._moment == "after":
            super().commit(name, stage)
        raise _Killed


class _CancellingControl(Control):
    def __init__(self, stage: str) -> None:
        super().__init__()
        self._victim = stage

    def begin(self, name: str) -> None:
        super().begin(name)
        if name == self._victim:
            threading.Thread(target=self.cancel).start()
