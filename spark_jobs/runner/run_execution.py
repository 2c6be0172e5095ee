"""Executes one run of the queue: one thread works, another sends heartbeats and interrupts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any, Final

from pyspark.sql import SparkSession

from mediator.base.errors import Unavailable
from mediator.catalogue.run_queue import HeartbeatReply, RunQueue, TakenRun
from mediator.catalogue.runs import RunState
from spark_jobs.runner.attempt import FORECAST, Attempt, Ending, InputReader, ResultWriter
from spark_jobs.runner.control import Control
from spark_jobs.runner.failures import reason_of
from spark_jobs.runner.job import restore_job
from spark_jobs.runner.run_directory import RunDirectory
from spark_jobs.runner.specification import SpecInvalid
from spark_jobs.session import SessionDied

__all__ = ["RunExecution", "WorkerContext"]

_log = logging.getLogger("portolan.jobs")

_HEARTBEAT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What all runs of a worker share.

    Attributes:
        queue: Where the run came from.
        spark: The session.
        read: Gives the inputs.
        writer: Writes results into classes.
        thread: The one thread that executes runs.
        directory: Where runs keep what they finished.
        lease_s: Seconds that a heartbeat extends the lease by.
        drain_s: Seconds that the run is given when the worker is to end.
    """

    queue: RunQueue
    spark: SparkSession
    read: InputReader
    writer: ResultWriter
    thread: ThreadPoolExecutor
    directory: Path
    lease_s: float
    drain_s: float


class RunExecution:
    """The execution of one run by a worker.

    Args:
        context: What runs of the worker share.
        run: The run, leased.
        stopping: Set when the worker is to end.
    """

    def __init__(self, context: WorkerContext, run: TakenRun, stopping: asyncio.Event) -> None:
        self._context = context
        self._run = run
        self._stopping = stopping
        self._control = Control()
        self._attempt: Attempt | None = None
        self._directory: RunDirectory | None = None
        self._deadline: float | None = None
        self._reply: HeartbeatReply = "continue"

    async def run_to_end(self) -> None:
        """Execute the run, and record its ending.

        Raises:
            SessionDied: The session has died and the run is abandoned; or the run has failed and
                spoilt the session for others.
        """
        if self._run.cancelling:
            self._control.cancel()
        _log.info("run %s begins, attempt %d", self._run.id, self._run.attempt)
        loop = asyncio.get_running_loop()
        self._control.hold_until(-inf)  # the age of the lease is unknown until the first reply
        await self._heartbeat()
        task = loop.run_in_executor(self._context.thread, self._execute)
        while not task.done():
            await asyncio.wait({task}, timeout=_HEARTBEAT_S)
            await self._heartbeat()
        ending = task.result()
        _log.info("run %s: %s", self._run.id, ending.state)
        if ending.state == "failed" and not await loop.run_in_executor(
            self._context.thread, self._session_lives
        ):
            # Abandoned, not released: a run that kills every session must not be retried for ever.
            await self._context.queue.abandon(self._run)
            raise SessionDied
        if self._released(ending):
            await self._context.queue.release(self._run)
        elif self._reply != "lost":
            await self._end(ending)
        if ending.spoilt:
            raise SessionDied

    def _execute(self) -> Ending:
        try:
            job = restore_job(self._run.document, self._run.database)
            path = self._context.directory / self._run.id
            self._directory = RunDirectory(path, self._run.attempt)
        except SpecInvalid as error:  # a kind that is missing here, or of another version
            return Ending("failed", (str(error),))
        except OSError as error:
            return Ending("failed", (reason_of(error),))
        self._attempt = Attempt(
            job,
            self._directory,
            self._context.spark,
            self._context.read,
            self._control,
            dry_run=self._run.dry_run,
            writer=self._context.writer,
        )
        return self._attempt.execute()

    async def _heartbeat(self) -> None:
        state: RunState = "forecasting" if self._control.forecast is None else "running"
        sent = monotonic()
        try:
            self._reply = await self._context.queue.heartbeat(
                self._run, state, self._control.snapshot(), self._context.lease_s
            )
        except Unavailable as error:
            # The run goes on. If another worker takes it meanwhile, our attempt does not count, and
            # without a lease nothing is written into a class.
            _log.warning("run %s cannot be reported: %s", self._run.id, error.detail)
        else:
            if self._reply == "continue":
                self._control.hold_until(sent + self._context.lease_s)
        if self._reply != "continue" or self._overdue():
            self._control.cancel()
        if self._control.cancelled and self._attempt is not None:
            await asyncio.to_thread(self._attempt.interrupt)

    def _overdue(self) -> bool:
        if not self._stopping.is_set():
            return False
        if self._deadline is None:
            self._deadline = monotonic() + self._context.drain_s
        return monotonic() >= self._deadline

    def _released(self, ending: Ending) -> bool:
        """Whether the run was cancelled only because this worker ends or lost its lease."""
        ours = self._stopping.is_set() or self._control.lease_lost
        return ending.state == "cancelled" and self._reply == "continue" and ours

    def _session_lives(self) -> bool:
        try:
            self._context.spark.range(1).count()
        except Exception:  # noqa: BLE001 - Py4J has errors of its own for a JVM that is gone
            return False
        return True

    async def _end(self, ending: Ending) -> None:
        """Record the ending; retried for as long as it takes, for the work is done."""
        progress, document = self._control.snapshot(), _document(ending, self._directory)
        while True:
            try:
                await self._context.queue.end(self._run, ending.state, progress, document)
            except Unavailable as error:
                _log.warning("run %s cannot be ended: %s", self._run.id, error.detail)
                await asyncio.sleep(_HEARTBEAT_S)
            else:
                return


def _document(ending: Ending, directory: RunDirectory | None) -> Mapping[str, Any]:
    """Return an ending as the catalogue keeps it."""
    document: dict[str, Any] = {"reasons": list(ending.reasons)}
    if ending.forecast is not None:
        document["forecast"] = asdict(ending.forecast)
    if ending.result is None or directory is None:
        return document
    stages = {name: kept for name, kept in directory.stages.items() if name != FORECAST}
    reports = {name: report for kept in stages.values() for name, report in kept.reports.items()}
    result = {"rows": ending.rows, "result": stages[ending.result].directory}
    return {**document, **result, "reports": reports}
