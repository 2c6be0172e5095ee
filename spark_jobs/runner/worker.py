"""A worker: takes runs from the queue, one at a time, and executes them.

The first run that needs a Spark session opens it.

A failure of the worker neither loses a run nor leaves it half visible (see
`mediator.catalogue.runs` and `run_directory`). To shut down, it takes no more runs, gives the
current run some time, and then releases it: another worker resumes after the finished stages.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any, Final

from mediator.admission.load import LoadMeter
from mediator.base.concurrency import end
from mediator.base.errors import Invalid, Unavailable
from mediator.catalogue.run_queue import CatalogueWorkers, HeartbeatReply, RunQueue, TakenRun
from mediator.catalogue.runs import RunState
from spark_jobs.runner.attempt import (
    FORECAST,
    Ending,
    InputReader,
    ResultWriter,
    RunAttempt,
    TableReader,
)
from spark_jobs.runner.control import Control
from spark_jobs.runner.failures import reason_of
from spark_jobs.runner.job import restore_job
from spark_jobs.runner.retention import remove_old_runs
from spark_jobs.runner.run_directory import RunDirectory
from spark_jobs.runner.specification import SpecInvalid
from spark_jobs.session import LazySession, SessionDied, SparkUnavailable

__all__ = ["RUN_HEARTBEAT_S", "RunExecution", "Worker", "WorkerOptions"]

_log = logging.getLogger("portolan.jobs")

RUN_HEARTBEAT_S: Final = 1.0
_WORKER_HEARTBEAT_S: Final = 5.0
_POLL_S: Final = 0.5
_REAP_INTERVAL_S: Final = 600.0

_NOT_STORED: Final = (
    "The catalogue cannot store the run's reports; the worker's log has the reason."
)


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Options of a worker.

    Attributes:
        name: Unique among all workers.
        directory: The directory of all runs; the same for all workers and all replicas.
        lease_s: Seconds without a heartbeat after which another worker may take a run.
        drain_s: Seconds that the current run gets when the worker shuts down.
        keep_s: Seconds for which a run is stored after its end.
    """

    name: str
    directory: Path
    lease_s: float = 15.0
    drain_s: float = 20.0
    keep_s: float = 7 * 86_400.0


@dataclass(eq=False)
class Worker:
    queue: RunQueue
    _workers: CatalogueWorkers
    session: LazySession
    read: InputReader
    writer: ResultWriter
    options: WorkerOptions
    read_table: TableReader | None = None

    def __post_init__(self) -> None:
        self.thread = ThreadPoolExecutor(1, "run")

    async def work(self, stopping: asyncio.Event) -> None:
        """Work until `stopping` is set.

        Raises:
            SessionDied: The session has died; the current run is left to the next worker.
            SparkUnavailable: It cannot be opened; the current run is released.
        """
        # Separate tasks: removing the files of many runs outlasts the heartbeat interval.
        background = [
            asyncio.create_task(coroutine) for coroutine in (self._send_heartbeats(), self._reap())
        ]
        try:
            while not stopping.is_set():
                await self._run_next(stopping)
        finally:
            await end(background)
            self.thread.shutdown(wait=False)

    async def _run_next(self, stopping: asyncio.Event) -> None:
        try:
            run = await self.queue.take(self.options.lease_s)
            if run is not None:
                await RunExecution(self, run, stopping).run_to_end()
                return
        except Unavailable as error:
            _log.warning("the queue of runs cannot be reached: %s", error.detail)
        with suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), _POLL_S)

    async def _send_heartbeats(self) -> None:
        meter = LoadMeter()
        while True:
            try:
                await self._workers.heartbeat(self.options.name, None, meter.read())
            except Unavailable as error:
                _log.warning("the catalogue cannot be reached: %s", error.detail)
            await asyncio.sleep(_WORKER_HEARTBEAT_S)

    async def _reap(self) -> None:
        while True:
            try:
                await remove_old_runs(self.queue, self.options.directory, self.options.keep_s)
            except Unavailable as error:
                _log.warning("old runs cannot be removed: %s", error.detail)
            await asyncio.sleep(_REAP_INTERVAL_S)


@dataclass(eq=False)
class RunExecution:
    """The execution of one leased run: one thread works, the event loop sends heartbeats."""

    _worker: Worker
    _run: TakenRun
    _stopping: asyncio.Event
    _control: Control = field(default_factory=Control, init=False)
    _attempt: RunAttempt | None = field(default=None, init=False)
    _directory: RunDirectory | None = field(default=None, init=False)
    _deadline: float | None = field(default=None, init=False)
    _reply: HeartbeatReply = field(default="continue", init=False)

    async def run_to_end(self) -> None:
        """Execute the run, and record its ending.

        Raises:
            SessionDied: The session has died and the run is abandoned; or the run has failed and
                left the session unusable.
            SparkUnavailable: The run needs a session, but none can be opened: it is released.
        """
        if self._run.cancelling:
            self._control.cancel()
        _log.info("run %s begins, attempt %d", self._run.id, self._run.attempt)
        loop = asyncio.get_running_loop()
        self._control.hold_until(-inf)  # the age of the lease is unknown until the first reply
        await self._heartbeat()
        task = loop.run_in_executor(self._worker.thread, self._execute)
        while not task.done():
            await asyncio.wait({task}, timeout=RUN_HEARTBEAT_S)
            await self._heartbeat()
        try:
            ending = task.result()
        except SparkUnavailable:
            await self._worker.queue.release(self._run)
            raise
        _log.info("run %s: %s", self._run.id, ending.state)
        if ending.state == "failed" and not await loop.run_in_executor(
            self._worker.thread, self._session_works
        ):
            # Abandoned, not released: a run that kills every session must not be retried forever.
            await self._worker.queue.abandon(self._run)
            raise SessionDied
        if self._released(ending):
            await self._worker.queue.release(self._run)
        elif self._reply != "lost":
            await self._end(ending)
        if ending.spoilt:
            raise SessionDied

    def _execute(self) -> Ending:
        try:
            job = restore_job(self._run.document, self._run.database)
            path = self._worker.options.directory / self._run.id
            self._directory = RunDirectory(path, self._run.attempt)
        except SpecInvalid as error:  # a kind that is missing here, or of another version
            return Ending("failed", (str(error),))
        except OSError as error:
            return Ending("failed", (reason_of(error),))
        self._attempt = RunAttempt(
            job,
            self._directory,
            self._worker.session,
            self._worker.read,
            self._control,
            dry_run=self._run.dry_run,
            writer=self._worker.writer,
            read_table=self._worker.read_table,
        )
        return self._attempt.execute()

    async def _heartbeat(self) -> None:
        state: RunState = "forecasting" if self._control.forecast is None else "running"
        sent = monotonic()
        try:
            self._reply = await self._worker.queue.heartbeat(
                self._run, state, self._control.snapshot(), self._worker.options.lease_s
            )
        except (Unavailable, Invalid) as error:
            # The run goes on. If another worker takes it meanwhile, this attempt does not count,
            # and without a lease it writes nothing into a class.
            _log.warning("run %s cannot be reported: %s", self._run.id, error.detail)
        else:
            if self._reply == "continue":
                # Counted from before the request: never later than its end in the catalogue.
                self._control.hold_until(sent + self._worker.options.lease_s)
        if self._reply != "continue" or self._overdue():
            self._control.cancel()
        if self._control.cancelled and self._attempt is not None:
            await asyncio.to_thread(self._attempt.interrupt)

    def _overdue(self) -> bool:
        if not self._stopping.is_set():
            return False
        if self._deadline is None:
            self._deadline = monotonic() + self._worker.options.drain_s
        return monotonic() >= self._deadline

    def _released(self, ending: Ending) -> bool:
        """Whether another attempt continues the run: it was interrupted, but not cancelled.

        Admission control held it back, possibly only for a while; or this worker shuts down, or
        lost its lease.
        """
        return ending.state == "cancelled" and self._reply in ("continue", "release")

    def _session_works(self) -> bool:
        if not self._worker.session.opened:
            return True
        try:
            self._worker.session.get().range(1).count()
        except Exception:  # noqa: BLE001 - Py4J raises its own errors once the JVM has died
            return False
        return True

    async def _end(self, ending: Ending) -> None:
        """Record the ending; the work is done, so retry until the worker shuts down."""
        state: RunState = ending.state
        progress, document = self._control.snapshot(), _document(ending, self._directory)
        while True:
            try:
                await self._worker.queue.end(self._run, state, progress, document)
            except Unavailable as error:
                _log.warning("run %s cannot be ended: %s", self._run.id, error.detail)
            except Invalid as error:
                # A retry would be refused too, by this worker and the next ones.
                _log.error("run %s cannot be stored", self._run.id, exc_info=error)
                state, progress, document = "failed", {}, {"reasons": [_NOT_STORED]}
            else:
                return
            if self._stopping.is_set() and not self._control.holds_lease:
                _log.warning("run %s is left to another worker", self._run.id)
                return
            await asyncio.sleep(RUN_HEARTBEAT_S)


def _document(ending: Ending, directory: RunDirectory | None) -> Mapping[str, Any]:
    document: dict[str, Any] = {"reasons": list(ending.reasons)}
    if ending.forecast is not None:
        document["forecast"] = asdict(ending.forecast)
    if ending.result is None or directory is None:
        return document
    stages = {name: stage for name, stage in directory.stages.items() if name != FORECAST}
    reports = {name: report for stage in stages.values() for name, report in stage.reports.items()}
    result = {"rows": ending.rows, "result": stages[ending.result].directory}
    return {**document, **result, "reports": reports}
