"""One run in the hands of a worker: one thread carries it out, another reports and interrupts."""

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
from mediator.catalogue.run_queue import Heard, RunQueue, TakenRun
from mediator.catalogue.runs import RunState
from spark_jobs.runner.control import Control
from spark_jobs.runner.execution import FORECAST, Ending, InputReader, ResultWriter, Run
from spark_jobs.runner.failures import reason_of
from spark_jobs.runner.job import read_job
from spark_jobs.runner.port import SpecInvalid
from spark_jobs.runner.run_directory import RunDirectory
from spark_jobs.session import SessionDied

__all__ = ["Bench", "Shift"]

_log = logging.getLogger("portolan.jobs")

_BEAT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Bench:
    """What a worker works with.

    Attributes:
        queue: Where the run came from.
        spark: The session.
        read: Gives the inputs.
        writer: Writes results into classes.
        thread: Where runs are carried out: one thread, and always the same.
        directory: Where runs keep what they finished.
        lease_s: Seconds that the run is the worker's after each report.
        drain_s: Seconds that it is given when the worker is to end.
    """

    queue: RunQueue
    spark: SparkSession
    read: InputReader
    writer: ResultWriter
    thread: ThreadPoolExecutor
    directory: Path
    lease_s: float
    drain_s: float


class Shift:
    """A worker's time with one run.

    Args:
        bench: What it works with.
        taken: The run.
        ending: Set when the worker is to end.
    """

    def __init__(self, bench: Bench, taken: TakenRun, ending: asyncio.Event) -> None:
        self._bench = bench
        self._taken = taken
        self._ending = ending
        self._control = Control()
        self._run: Run | None = None
        self._directory: RunDirectory | None = None
        self._deadline: float | None = None
        self._heard: Heard = "go on"

    async def work(self) -> None:
        """Carry the run out, and tell its ending.

        Raises:
            SessionDied: The session has died, and the run is left as if the worker had; or it is
                spoilt for others, and the run has failed.
        """
        if self._taken.cancelling:
            self._control.cancel()
        _log.info("run %s begins, attempt %d", self._taken.id, self._taken.attempt)
        loop = asyncio.get_running_loop()
        self._control.hold(-inf)  # how old the lease is by now nobody knows
        await self._beat()
        task = loop.run_in_executor(self._bench.thread, self._carry_out)
        while not task.done():
            await asyncio.wait({task}, timeout=_BEAT_S)
            await self._beat()
        ending = task.result()
        _log.info("run %s: %s", self._taken.id, ending.state)
        if ending.state == "failed" and not await loop.run_in_executor(
            self._bench.thread, self._lives
        ):
            # Not given back: a run that kills each session would be tried for ever.
            await self._bench.queue.abandon(self._taken)
            raise SessionDied
        if self._released(ending):
            await self._bench.queue.release(self._taken)
        elif self._heard != "lost":
            await self._end(ending)
        if ending.spoilt:
            raise SessionDied

    def _carry_out(self) -> Ending:
        try:
            job = read_job(self._taken.document, self._taken.database)
            path = self._bench.directory / self._taken.id
            self._directory = RunDirectory(path, self._taken.attempt)
        except (
            SpecInvalid
        ) as error:  # of a kind that this worker has in another version, or has not
            return Ending("failed", (str(error),))
        except OSError as error:
            return Ending("failed", (reason_of(error),))
        self._run = Run(
            job,
            self._directory,
            self._bench.spark,
            self._bench.read,
            self._control,
            dry_run=self._taken.dry_run,
            writer=self._bench.writer,
        )
        return self._run.carry_out()

    async def _beat(self) -> None:
        state: RunState = "forecasting" if self._control.forecast is None else "running"
        asked = monotonic()
        try:
            self._heard = await self._bench.queue.beat(
                self._taken, state, self._control.snapshot(), self._bench.lease_s
            )
        except Unavailable as error:
            # The run goes on: if somebody else gets it meanwhile, nothing of ours will count, and
            # nothing is written into a class.
            _log.warning("run %s cannot be reported: %s", self._taken.id, error.detail)
        else:
            if self._heard == "go on":
                self._control.hold(asked + self._bench.lease_s)
        if self._heard != "go on" or self._overdue():
            self._control.cancel()
        if self._control.cancelled and self._run is not None:
            await asyncio.to_thread(self._run.interrupt)

    def _overdue(self) -> bool:
        if not self._ending.is_set():
            return False
        if self._deadline is None:
            self._deadline = monotonic() + self._bench.drain_s
        return monotonic() >= self._deadline

    def _released(self, ending: Ending) -> bool:
        """Whether the run ends here for the worker's sake, and nobody else wants it to."""
        ours = self._ending.is_set() or self._control.lapsed
        return ending.state == "cancelled" and self._heard == "go on" and ours

    def _lives(self) -> bool:
        try:
            self._bench.spark.range(1).count()
        except Exception:  # noqa: BLE001 - Py4J has errors of its own for a JVM that is gone
            return False
        return True

    async def _end(self, ending: Ending) -> None:
        """Tell the ending, for as long as it takes: the work is done."""
        progress, document = self._control.snapshot(), _document(ending, self._directory)
        while True:
            try:
                await self._bench.queue.end(self._taken, ending.state, progress, document)
            except Unavailable as error:
                _log.warning("run %s cannot be ended: %s", self._taken.id, error.detail)
                await asyncio.sleep(_BEAT_S)
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
