"""One attempt at a run: reads the inputs, forecasts, and executes stage after stage.

Finished stages are not repeated; `run_directory` lists the crash windows. Inputs are read once and
kept, so that all stages and all attempts see the same: each object as it was at some moment while
the input was read.

**Cancelling.** `Control.cancel` and `interrupt` may be called at any moment by another thread. The
tag is interrupted repeatedly until the run has ended, because an interruption between two actions
hits neither. `StageContext.progress` and every stage boundary check the flag as well.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any, Final, Literal, Protocol, TypeAlias
from weakref import WeakKeyDictionary

import pyarrow.parquet as pq
from pydantic import TypeAdapter
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.utils import is_remote

from spark_jobs.runner.control import Control
from spark_jobs.runner.failures import reason_of, spoils_session
from spark_jobs.runner.job import Into, Job
from spark_jobs.runner.port import (
    ColumnType,
    Forecast,
    Input,
    InputUnfit,
    RunCancelled,
    Stage,
    StageContext,
)
from spark_jobs.runner.results import ResultFiles
from spark_jobs.runner.run_directory import FinishedStage, RunDirectory

__all__ = ["FORECAST", "Ending", "InputReader", "ResultWriter", "RunAttempt"]

_log = logging.getLogger("portolan.jobs")

InputReader: TypeAlias = Callable[[SparkSession, Input], DataFrame]
"""Gives an input: `id` and the requested fields; raises `InputUnfit`."""


class ResultWriter(Protocol):
    def check(self, into: Into, columns: Mapping[str, ColumnType]) -> None:
        """Refuse, before anything is done, a result whose columns do not fit the class.

        Raises:
            InputUnfit: It does not fit.
        """

    def write(self, context: StageContext, run: str, into: Into, files: ResultFiles) -> None:
        """Write the result of a run, by its id; may be called again after a crash."""


RunState: TypeAlias = Literal["done", "stopped", "failed", "cancelled"]

FORECAST: Final = "forecast"
"""The stage between reading and the kind's own."""

_READ: Final = "read "
_ROW_GROUP: Final = 8 * 2**20
"""Bytes: a page of a result is found without decoding much before it."""

_FORECASTS: Final = TypeAdapter(Forecast)
_measured: Final[WeakKeyDictionary[SparkSession, float]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended.

    Attributes:
        state: done; stopped, by its limits; failed; or cancelled.
        reasons: Why it was stopped or failed, in sentences.
        forecast: None if the run ended before its forecast.
        rows: Rows of the result; None: there is none.
        result: The stage whose frame is the result.
        spoilt: Whether the session cannot be trusted any more.
    """

    state: RunState
    reasons: tuple[str, ...] = ()
    forecast: Forecast | None = None
    rows: int | None = None
    result: str | None = None
    spoilt: bool = False


@dataclass(eq=False)
class RunAttempt:
    """One attempt at a run, on a session that others may use at the same time.

    A dry run ends with the forecast; a job with `into` needs a writer.
    """

    _job: Job
    _directory: RunDirectory
    _spark: SparkSession
    _read: InputReader
    _control: Control
    _: KW_ONLY
    dry_run: bool = False
    writer: ResultWriter | None = None

    def __post_init__(self) -> None:
        self._tag = f"portolan-{self._directory.path.name}-{self._directory.attempt}"

    def execute(self) -> Ending:
        """Execute the job; every failure becomes an `Ending`."""
        try:
            with _interruptible(self._spark, self._tag):
                return self._execute()
        except RunCancelled:
            return Ending("cancelled", forecast=self._control.forecast)
        except Exception as error:  # noqa: BLE001 - kinds are plug-ins: none may end the worker
            if self._control.cancelled:  # an interrupted action fails in many ways
                return Ending("cancelled", forecast=self._control.forecast)
            _log.warning("run %s failed", self._directory.path.name, exc_info=error)
            spoilt = spoils_session(error)
            reasons = (reason_of(error),)
            return Ending("failed", reasons, self._control.forecast, spoilt=spoilt)

    def interrupt(self) -> None:
        """Interrupt the present action; to be called again until `execute` has returned."""
        try:
            _interrupt(self._spark, self._tag)
        except Exception as error:  # noqa: BLE001 - Py4J's own errors, when the JVM is gone
            _log.warning("run %s was not interrupted: %s", self._directory.path.name, error)

    def _execute(self) -> Ending:
        if not self._directory.claim(self._job.fingerprint):
            raise InputUnfit(
                "What is kept here belongs to another job: use a directory of its own."
            )
        if self._job.into is not None:
            assert self.writer is not None  # only a service takes such jobs
            self.writer.check(self._job.into, self._job.columns)
        reading = [(self._reading(input_), input_.identified) for input_ in self._job.inputs]
        self._control.plan([*(stage.name for stage, _ in reading), FORECAST])
        for stage, identified in reading:
            self._do(stage, self._check_ids if identified else None)
        forecast = self._make_forecast()
        if exceeded := self._job.limits.exceeded(forecast):
            return Ending("stopped", exceeded, forecast)
        if self.dry_run:
            return Ending("done", forecast=forecast)
        stages = self._job.stages
        result = stages[-1].name
        writing = [] if self._job.into is None else [self._writing(self._job.into, result)]
        self._control.plan(stage.name for stage in (*stages, *writing))
        for stage in (*stages, *writing):
            self._do(stage)
        return Ending("done", (), forecast, self._directory.stages[result].rows, result)

    def _make_forecast(self) -> Forecast:
        def report(context: StageContext) -> None:
            forecast = self._job.kind.forecast(self._job.spec, context)
            overhead_s = stage_overhead_s(context.spark, self._directory.new_path())
            time_s = forecast.time_s + overhead_s * len(self._job.stages)
            context.report(FORECAST, asdict(replace(forecast, time_s=time_s)))

        self._do(Stage(FORECAST, report))
        forecast = _FORECASTS.validate_python(self._directory.stages[FORECAST].reports[FORECAST])
        self._control.set_forecast(forecast)
        return forecast

    def _do(self, stage: Stage, verify: Callable[[str, FinishedStage], None] | None = None) -> None:
        self._control.check()
        kept = self._directory.stages.get(stage.name)
        if kept is None:
            self._control.begin(stage.name)
            kept = self._keep(stage)
            if verify is not None:
                verify(stage.name, kept)
            self._control.check()
            self._directory.commit(stage.name, kept)
        self._control.end(stage.name, rows=kept.rows, seconds=kept.seconds, counters=kept.counters)

    def _keep(self, stage: Stage) -> FinishedStage:
        began = monotonic()
        context = _DirectoryContext(self._spark, self._control, self._directory, stage.name)
        frame = stage.run(context)
        if frame is None:
            return FinishedStage(None, 0, monotonic() - began, context.counters, context.reports)
        target = self._directory.new_path()
        frame.write.option("parquet.block.size", _ROW_GROUP).parquet(str(target))
        rows = sum(pq.read_metadata(part).num_rows for part in target.glob("*.parquet"))
        return FinishedStage(
            target.name, rows, monotonic() - began, context.counters, context.reports
        )

    def _check_ids(self, stage: str, kept: FinishedStage) -> None:
        assert kept.directory is not None
        ids = self._spark.read.parquet(str(self._directory.path_of(kept.directory))).select("id")
        wrong = ids.groupBy("id").count().where(f.col("id").isNull() | (f.col("count") > 1))
        if row := wrong.first():
            table = stage.removeprefix(_READ)
            reason = "a row has no id" if row["id"] is None else f"the id {row['id']!r} is doubled"
            raise InputUnfit(f"{table}: {reason}.")

    def _reading(self, input_: Input) -> Stage:
        def read(context: StageContext) -> DataFrame:
            return self._read(context.spark, input_)

        return Stage(_stage_of(input_.name), read)

    def _writing(self, into: Into, result: str) -> Stage:
        def write(context: StageContext) -> None:
            self._control.begin_publishing()
            files = ResultFiles(self._directory.frame(result))
            assert self.writer is not None  # as above
            self.writer.write(context, self._directory.path.name, into, files)

        return Stage(f"write {into.class_name}", write)


@dataclass(eq=False)
class _DirectoryContext:
    spark: SparkSession
    control: Control
    _directory: RunDirectory
    _stage: str
    counters: dict[str, int] = field(default_factory=dict, init=False)
    reports: dict[str, Any] = field(default_factory=dict, init=False)

    def input(self, name: str) -> DataFrame:
        return self.output(_stage_of(name))

    def output(self, stage: str) -> DataFrame:
        return self.spark.read.parquet(str(self._directory.frame(stage)))

    def progress(self, done: int, total: int) -> None:
        self.control.check()
        self.control.advance(self._stage, done, total)

    def count(self, name: str, by: int = 1) -> None:
        self.counters[name] = self.counters.get(name, 0) + by

    def report(self, name: str, document: Mapping[str, Any]) -> None:
        self.reports[name] = dict(document)


def _stage_of(name: str) -> str:
    return _READ + name


def stage_overhead_s(spark: SparkSession, scratch: Path) -> float:
    """Return the seconds of a stage without work: planned, shuffled, written, and read again.

    Measured once for each session, because it follows from the cluster and its settings. The
    session has been used before, so that what it loads once is loaded. `scratch` does not exist
    before and after.
    """
    if spark not in _measured:
        began = monotonic()
        spark.range(1).groupBy("id").count().write.parquet(str(scratch))
        spark.read.parquet(str(scratch)).count()
        _measured[spark] = monotonic() - began
        shutil.rmtree(scratch, ignore_errors=True)
    return _measured[spark]


@contextmanager
def _interruptible(spark: SparkSession, tag: str) -> Iterator[None]:
    """Allow `_interrupt` to stop the actions of this thread while the block runs.

    In a session of our own the tags are the context's: since Spark 4.1 those of
    `SparkSession.addTag` are found only by the thread that added them. Spark Connect has no
    context, and finds its tags from every thread.
    """
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


def _interrupt(spark: SparkSession, tag: str) -> None:
    """Interrupt the present actions with a tag; later ones are not affected."""
    if is_remote():
        spark.interruptTag(tag)
    else:
        spark.sparkContext.cancelJobsWithTag(tag)
