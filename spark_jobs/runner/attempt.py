"""One attempt at a run: reads the inputs, forecasts, and executes stage after stage.

Finished stages are not repeated; `run_directory` lists the crash windows. Inputs are read once and
stored, so all stages and attempts see the same data: each object as it was at some moment during
the read.

**Cancelling.** Another thread can call `Control.cancel` and `interrupt` at any moment. The tag is
interrupted repeatedly until the run has ended, because an interruption between two actions hits
neither. `StageContext.progress` and every stage boundary also check the flag.
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
from spark_jobs.runner.frames import frame_rows, frame_table, invalid_id, read_frame, write_frame
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
"""Reads an input: `id` and the requested fields; raises `InputUnfit`."""

TableReader: TypeAlias = Callable[[Input, Callable[[], None]], "pa.Table | None"]
"""Reads an input without Spark; None: it has more rows than `Input.local_rows`, or needs Spark.

It calls the function it is passed now and then; that raises if the run must end.
"""


class ResultWriter(Protocol):
    def check(self, into: Into, columns: Mapping[str, ColumnType]) -> None:
        """Check, before the run starts, that the columns of the result fit the class.

        Raises:
            InputUnfit: They do not fit.
        """

    def write(self, context: StageContext, result: str, into: Into, files: ResultFiles) -> None:
        """Write a result by its name; called again after a crash.

        The name is stable while the result is stored. A recomputed result has a new name, because
        its rows can differ.
        """


RunState: TypeAlias = Literal["done", "stopped", "failed", "cancelled"]

FORECAST: Final = "forecast"
"""The stage between the reading stages and the kind's stages."""

_READ_PREFIX: Final = "read "

_TOO_LATE: Final = (
    "The result cannot be written into {}: an earlier attempt started that over {} hours ago, and"
    " its writes may no longer be recognised. Submit the job again."
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
        spoilt: Whether the session can no longer be used.
    """

    state: RunState
    reasons: tuple[str, ...] = ()
    forecast: Forecast | None = None
    rows: int | None = None
    result: str | None = None
    spoilt: bool = False


@dataclass(eq=False)
class RunAttempt:
    """One attempt at a run, on a session shared with other threads.

    A dry run ends with the forecast; a job with `into` needs a writer. Without `read_table`, Spark
    reads all inputs.
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
            if self._control.cancelled:  # an interrupted action can fail with any error
                return Ending("cancelled", forecast=self._control.forecast)
            _log.warning("run %s failed", self._directory.path.name, exc_info=error)
            spoilt = spoils_session(error)
            reasons = (reason_of(error),)
            return Ending("failed", reasons, self._control.forecast, spoilt=spoilt)

    def interrupt(self) -> None:
        """Interrupt the current action; call it repeatedly until `execute` has returned."""
        try:
            self._spark.interrupt()
        except Exception as error:  # noqa: BLE001 - Py4J raises its own errors once the JVM has died
            _log.warning("run %s was not interrupted: %s", self._directory.path.name, error)

    def _execute(self) -> Ending:
        if not self._directory.claim(self._job.fingerprint):
            raise InputUnfit("This directory belongs to another job: use a separate directory.")
        if self._job.into is not None:
            assert self.writer is not None  # only a service accepts such jobs
            self.writer.check(self._job.into, self._job.columns)
        read_stages = [(self._read_stage(input_), input_.identified) for input_ in self._job.inputs]
        self._control.plan([*(stage.name for stage, _ in read_stages), FORECAST])
        for stage, identified in read_stages:
            self._run_stage(stage, self._check_ids if identified else None)
        forecast = self._make_forecast()
        if exceeded := self._job.limits.exceeded(forecast):
            return Ending("stopped", exceeded, forecast)
        if self.dry_run:
            return Ending("done", forecast=forecast)
        stages = self._job.stages
        result = stages[-1].name
        write_stages = [] if self._job.into is None else [self._write_stage(self._job.into, result)]
        self._control.plan(stage.name for stage in (*stages, *write_stages))
        for stage in (*stages, *write_stages):
            self._run_stage(stage)
        return Ending("done", (), forecast, self._directory.stages[result].rows, result)

    def _make_forecast(self) -> Forecast:
        def report(context: StageContext) -> None:
            forecast = self._job.kind.forecast(self._job.spec, context)
            time_s = forecast.time_s + self._overhead_s() * len(self._job.stages)
            run_forecast = replace(forecast, time_s=time_s, starting_s=self._spark.starting_s)
            context.report(FORECAST, asdict(run_forecast))

        self._run_stage(Stage(FORECAST, report))
        forecast = _FORECASTS.validate_python(self._directory.stages[FORECAST].reports[FORECAST])
        self._control.set_forecast(forecast)
        return forecast

    def _overhead_s(self) -> float:
        """Seconds of an empty stage; 0 if the forecast, and so every stage, needs no Spark."""
        if not self._spark.used:
            return 0.0
        return stage_overhead_s(self._spark.get(), self._directory.new_path())

    def _run_stage(
        self, stage: Stage, verify: Callable[[str, FinishedStage], None] | None = None
    ) -> None:
        self._control.check()
        record = self._directory.stages.get(stage.name)
        if record is None:
            self._control.start(stage.name)
            record = self._store_output(stage)
            if verify is not None:
                verify(stage.name, record)
            self._control.check()
            self._directory.commit(stage.name, record)
        self._control.end(
            stage.name, rows=record.rows, seconds=record.seconds, counters=record.counters
        )

    def _store_output(self, stage: Stage) -> FinishedStage:
        start = monotonic()
        context = _DirectoryContext(self._spark, self._control, self._directory, stage.name)
        frame = stage.run(context)
        if frame is None:
            return FinishedStage(None, 0, monotonic() - start, context.counters, context.reports)
        target = self._directory.new_path()
        write_frame(frame, target)
        rows = frame_rows(target)
        return FinishedStage(
            target.name, rows, monotonic() - start, context.counters, context.reports
        )

    def _check_ids(self, stage: str, record: FinishedStage) -> None:
        assert record.directory is not None
        spark = self._spark.get() if self._spark.used else None
        for id_ in invalid_id(spark, self._directory.path_of(record.directory)):
            reason = "a row has no id" if id_ is None else f"the id {id_!r} is duplicated"
            raise InputUnfit(f"{stage.removeprefix(_READ_PREFIX)}: {reason}.")

    def _read_stage(self, input_: Input) -> Stage:
        def read(context: StageContext) -> Frame:
            if input_.local_rows and self.read_table is not None:
                table = self.read_table(input_, self._control.check)
                if table is not None:
                    return table
            return self._read(context.spark, input_)

        return Stage(_stage_of(input_.name), read)

    def _write_stage(self, into: Into, result: str) -> Stage:
        def write(context: StageContext) -> None:
            self._control.start_publishing()
            now = time()
            if now - self._directory.start_publishing(now) > REPEATABLE_S:
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
    return _READ_PREFIX + name
