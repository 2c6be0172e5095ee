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
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from time import monotonic, time
from typing import Any, Final, Literal, Protocol, TypeAlias

import pyarrow as pa
from pydantic import TypeAdapter
from pyspark.sql import DataFrame, SparkSession

from mediator.stores.port import REPEATABLE_S
from spark_jobs.runner.control import Control
from spark_jobs.runner.failures import reason_of, spoils_session
from spark_jobs.runner.frames import frame_rows, frame_table, read_frame, write_frame, wrong_id
from spark_jobs.runner.job import Into, Job
from spark_jobs.runner.port import (
    ColumnType,
    Forecast,
    Frame,
    Input,
    InputUnfit,
    RunCancelled,
    Stage,
    StageContext,
)
from spark_jobs.runner.results import ResultFiles
from spark_jobs.runner.run_directory import FinishedStage, RunDirectory
from spark_jobs.runner.run_session import RunSession, stage_overhead_s
from spark_jobs.session import LazySession, SparkUnavailable

__all__ = ["FORECAST", "Ending", "InputReader", "ResultWriter", "RunAttempt", "TableReader"]

_log = logging.getLogger("portolan.jobs")

InputReader: TypeAlias = Callable[[SparkSession, Input], DataFrame]
"""Gives an input: `id` and the requested fields; raises `InputUnfit`."""

TableReader: TypeAlias = Callable[[Input, Callable[[], None]], "pa.Table | None"]
"""Reads the same without Spark; None: it has more rows than `Input.local_rows`, or is for Spark.

The function that it is given is called now and then; it raises if the run is to end.
"""


class ResultWriter(Protocol):
    def check(self, into: Into, columns: Mapping[str, ColumnType]) -> None:
        """Refuse, before anything is done, a result whose columns do not fit the class.

        Raises:
            InputUnfit: It does not fit.
        """

    def write(self, context: StageContext, result: str, into: Into, files: ResultFiles) -> None:
        """Write a result by its name; may be called again after a crash.

        The name is the same as long as the result is kept, and another one if it is made anew: its
        rows may be others then.
        """


RunState: TypeAlias = Literal["done", "stopped", "failed", "cancelled"]

FORECAST: Final = "forecast"
"""The stage between reading and the kind's own."""

_READ: Final = "read "

_TOO_LATE: Final = (
    "The result cannot be written into {}: an earlier attempt began to more than {} hours ago, and"
    " what it has written may not be recognised any more. Submit the job anew."
)

_FORECASTS: Final = TypeAdapter(Forecast)


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

    A dry run ends with the forecast; a job with `into` needs a writer. Without `read_table` all
    inputs are read by Spark.
    """

    _job: Job
    _directory: RunDirectory
    _session: LazySession
    _read: InputReader
    _control: Control
    _: KW_ONLY
    dry_run: bool = False
    writer: ResultWriter | None = None
    read_table: TableReader | None = None

    def __post_init__(self) -> None:
        tag = f"portolan-{self._directory.path.name}-{self._directory.attempt}"
        self._spark = RunSession(self._session, tag)

    def execute(self) -> Ending:
        """Execute the job; every failure becomes an `Ending`."""
        try:
            with self._spark:
                return self._execute()
        except RunCancelled:
            return Ending("cancelled", forecast=self._control.forecast)
        except SparkUnavailable:
            raise
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
            self._spark.interrupt()
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
            time_s = forecast.time_s + self._overhead_s() * len(self._job.stages)
            whole = replace(forecast, time_s=time_s, starting_s=self._spark.starting_s)
            context.report(FORECAST, asdict(whole))

        self._do(Stage(FORECAST, report))
        forecast = _FORECASTS.validate_python(self._directory.stages[FORECAST].reports[FORECAST])
        self._control.set_forecast(forecast)
        return forecast

    def _overhead_s(self) -> float:
        """Seconds of an empty stage; 0: a run whose forecast needed no Spark has stages without."""
        if not self._spark.used:
            return 0.0
        return stage_overhead_s(self._spark.get(), self._directory.new_path())

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
        write_frame(frame, target)
        rows = frame_rows(target)
        return FinishedStage(
            target.name, rows, monotonic() - began, context.counters, context.reports
        )

    def _check_ids(self, stage: str, kept: FinishedStage) -> None:
        assert kept.directory is not None
        spark = self._spark.get() if self._spark.used else None
        for id_ in wrong_id(spark, self._directory.path_of(kept.directory)):
            reason = "a row has no id" if id_ is None else f"the id {id_!r} is doubled"
            raise InputUnfit(f"{stage.removeprefix(_READ)}: {reason}.")

    def _reading(self, input_: Input) -> Stage:
        def read(context: StageContext) -> Frame:
            if input_.local_rows and self.read_table is not None:
                table = self.read_table(input_, self._control.check)
                if table is not None:
                    return table
            return self._read(context.spark, input_)

        return Stage(_stage_of(input_.name), read)

    def _writing(self, into: Into, result: str) -> Stage:
        def write(context: StageContext) -> None:
            self._control.begin_publishing()
            now = time()
            if now - self._directory.begin_publishing(now) > REPEATABLE_S:
                raise InputUnfit(_TOO_LATE.format(into.class_name, REPEATABLE_S // 3600))
            frame = self._directory.frame(result)
            assert self.writer is not None  # as above
            self.writer.write(context, frame.name, into, ResultFiles(frame))

        return Stage(f"write {into.class_name}", write)


@dataclass(eq=False)
class _DirectoryContext:
    _spark: RunSession
    control: Control
    _directory: RunDirectory
    _stage: str
    counters: dict[str, int] = field(default_factory=dict, init=False)
    reports: dict[str, Any] = field(default_factory=dict, init=False)

    @property
    def spark(self) -> SparkSession:
        return self._spark.get()

    def input(self, name: str) -> DataFrame:
        return self.output(_stage_of(name))

    def output(self, stage: str) -> DataFrame:
        return read_frame(self.spark, self._directory.frame(stage))

    def input_rows(self, name: str) -> int:
        return self._directory.stages[_stage_of(name)].rows

    def input_table(self, name: str) -> pa.Table:
        return self.output_table(_stage_of(name))

    def output_table(self, stage: str) -> pa.Table:
        return frame_table(self._directory.frame(stage))

    def progress(self, done: int, total: int) -> None:
        self.control.check()
        self.control.advance(self._stage, done, total)

    def count(self, name: str, by: int = 1) -> None:
        self.counters[name] = self.counters.get(name, 0) + by

    def report(self, name: str, document: Mapping[str, Any]) -> None:
        self.reports[name] = dict(document)


def _stage_of(name: str) -> str:
    return _READ + name
