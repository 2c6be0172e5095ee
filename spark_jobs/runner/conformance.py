"""Conformance tests for every kind of job, Portolan's and those of plug-ins.

    SAMPLE = SampleJob("example.count", {"records": {"file": "people.csv"}, "field": "city"})

    def test_it_conforms(spark, tmp_path):
        check_kind(SAMPLE, spark, tmp_path)

Keep the sample small: each of its stages is executed four times. A test marked
``pytest.mark.connect`` also runs over Spark Connect.
"""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from mediator.schema.ids import id_error
from spark_jobs.runner.attempt import FORECAST, Ending, InputReader, RunAttempt
from spark_jobs.runner.control import Control
from spark_jobs.runner.job import Job, parse_job
from spark_jobs.runner.local import run_to_end
from spark_jobs.runner.results import ResultFiles
from spark_jobs.runner.run_directory import FinishedStage, RunDirectory
from spark_jobs.runner.specification import SpecInvalid
from spark_jobs.session import LazySession
from spark_jobs.sources.reading import read_input
from spark_jobs.sources.tables import read_table

__all__ = [
    "SampleJob",
    "check_hostile_specs",
    "check_interrupted",
    "check_kind",
    "check_spec",
    "result_lines",
    "run_sample",
]

_KILL_MOMENTS: Final = ("before", "after")
"""When a run is killed, relative to the commit of a stage."""

_HOSTILE: Final[Sequence[Any]] = (
    None, True, -1, 0, 10**30, 1.5, float("nan"), float("inf"), "", "\0", "x" * 5_000,
    "'; DROP TABLE runs; --", "${jndi:ldap://x}", [], {}, [[]], [None], {"": {}}, {"file": 7},
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SampleJob:
    """A small job for the tests of a kind.

    Attributes:
        spec: A valid specification; its sources are files.
        ordered: Whether the order of the result's rows is significant.
    """

    kind: str
    spec: Mapping[str, Any]
    ordered: bool = False

    @property
    def document(self) -> dict[str, Any]:
        return {"kind": self.kind, "spec": copy.deepcopy(dict(self.spec))}

    @property
    def job(self) -> Job:
        return parse_job(self.document)


def check_kind(sample: SampleJob, spark: SparkSession, scratch: Path) -> None:
    """Run all checks; `scratch` is an empty directory."""
    check_spec(sample)
    check_hostile_specs(sample)
    check_interrupted(sample, spark, scratch)


def check_spec(sample: SampleJob) -> None:
    """Check that a specification survives a JSON round trip, and parsing keeps the document."""
    document = sample.document
    job = parse_job(document)
    assert document == sample.document, "parsing changed the document"
    reparsed = parse_job(json.loads(json.dumps(document)))
    assert reparsed.spec == job.spec, "the specification does not survive a round trip as JSON"
    names = [input_.name for input_ in job.inputs]
    stages = [stage.name for stage in job.stages]
    assert stages, "a kind has one stage at least"
    assert len({*names}) == len(names), "two inputs have one name"
    assert len({*stages}) == len(stages), "two stages have one name"
    assert stages == [stage.name for stage in reparsed.stages]


def check_hostile_specs(sample: SampleJob) -> None:
    """Check that a malformed member is refused with its location, unless it is valid."""
    for mutation in _mutations(dict(sample.spec)):
        try:
            parse_job({"kind": sample.kind, "spec": mutation})
        except SpecInvalid as error:
            assert error.pointer == "" or error.pointer.startswith("/spec"), error  # noqa: PT017
            assert error.reason, "a refusal without a reason"  # noqa: PT017


def check_interrupted(sample: SampleJob, spark: SparkSession, scratch: Path) -> None:
    """Check that a run interrupted at every stage gives the same result.

    Each stage is cancelled as it starts, killed before its commit, and killed after it; the next
    attempt resumes after the finished stages.
    """
    expected = run_sample(sample, spark, RunDirectory(scratch / "whole"))
    path = scratch / "interrupted"
    for stage in _stages(sample.job):
        control = _CancellingControl(stage)
        attempt = RunAttempt(
            sample.job,
            RunDirectory(path),
            LazySession.of(spark),
            read_input,
            control,
            read_table=read_table,
        )
        ending = run_to_end(attempt, control, lambda: None)
        assert ending.state == "cancelled", (stage, ending)
        for moment in _KILL_MOMENTS:
            directory = _DyingDirectory(path, stage, moment)
            try:
                run_sample(sample, spark, directory)
            except _Killed:
                pass
            else:
                raise AssertionError(f"the run was not killed at {stage}")
            assert (stage in RunDirectory(path).stages) is (moment == "after"), stage
    assert run_sample(sample, spark, RunDirectory(path)) == expected


def run_sample(
    sample: SampleJob, spark: SparkSession, directory: RunDirectory, read: InputReader = read_input
) -> list[str]:
    """Execute a sample job; return the rows of its result as JSON lines."""
    job = sample.job
    session = LazySession.of(spark)
    ending = RunAttempt(job, directory, session, read, Control(), read_table=read_table).execute()
    lines = result_lines(directory, ending, ordered=sample.ordered)
    columns = ResultFiles(directory.frame(job.stages[-1].name)).columns
    assert columns == job.columns, "the result's columns differ from those the kind declares"
    if "id" in columns:
        _check_ids(json.loads(line)["id"] for line in lines)
    return lines


def _check_ids(ids: Iterable[str]) -> None:
    """Check that a class accepts the ids: rows can become objects of a class."""
    for id_ in ids:
        error = id_error(id_)
        assert error is None, f"the id {id_!r} of a row {error}: no class accepts it"


def result_lines(directory: RunDirectory, ending: Ending, *, ordered: bool) -> list[str]:
    """Return the rows of a result as JSON lines; sorted, unless `ordered`."""
    assert ending.state == "done", ending
    assert ending.result is not None
    lines = b"".join(ResultFiles(directory.frame(ending.result)).stream("json")).decode()
    rows = lines.splitlines()
    assert len(rows) == ending.rows
    return rows if ordered else sorted(rows)


def _stages(job: Job) -> list[str]:
    read_stages = [f"read {input_.name}" for input_ in job.inputs]
    return [*read_stages, FORECAST, *(stage.name for stage in job.stages)]


def _mutations(document: Any) -> Iterator[Any]:
    """Yield the document with each member malformed or removed, and with an unknown member."""
    yield from _HOSTILE
    if isinstance(document, dict):
        yield document | {"no such member": 1}
        for name, value in document.items():
            yield {key: item for key, item in document.items() if key != name}
            for mutation in _mutations(value):
                yield document | {name: mutation}
    if isinstance(document, list):
        for index, value in enumerate(document):
            for mutation in _mutations(value):
                yield [*document[:index], mutation, *document[index + 1 :]]


class _Killed(BaseException):
    """Stands for SIGKILL: no handler, no clean-up."""


class _DyingDirectory(RunDirectory):
    def __init__(self, path: Path, stage: str, moment: str) -> None:
        super().__init__(path)
        self._victim = stage
        self._moment = moment

    def commit(self, name: str, stage: FinishedStage) -> None:
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

    def start(self, name: str) -> None:
        super().start(name)
        if name == self._victim:
            threading.Thread(target=self.cancel).start()
