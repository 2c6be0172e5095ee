"""A worker: takes runs from the queue, one at a time, and executes them on its session.

Whatever happens to it, no run is lost or half visible (see `mediator.catalogue.runs` and
`run_directory`). When it is to end it takes no more runs, gives the one under way some time, and
then releases it: another worker resumes behind the finished stages.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

from pyspark.sql import SparkSession

from mediator.base.errors import Unavailable
from mediator.catalogue.run_queue import CatalogueWorkers, RunQueue
from spark_jobs.runner.attempt import InputReader, ResultWriter
from spark_jobs.runner.run_execution import RunExecution, WorkerContext

__all__ = ["Worker", "WorkerOptions"]

_log = logging.getLogger("portolan.jobs")

_IDLE_S: Final = 0.5
_HEARTBEAT_S: Final = 5.0
_REAP_S: Final = 600.0
_REAP_BATCH: Final = 100


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Options of a worker.

    Attributes:
        name: Its name, which no other worker has.
        directory: Where runs keep what they finished; the same for all workers and all replicas.
        lease_s: Seconds without a heartbeat after which a run is given to another worker.
        drain_s: Seconds that the run under way is given when the worker is to end.
        keep_s: Seconds for which a run is kept after its end.
    """

    name: str
    directory: Path
    lease_s: float = 15.0
    drain_s: float = 20.0
    keep_s: float = 7 * 86_400.0


class Worker:
    """Executes runs until it is to end.

    Args:
        queue: Where runs come from.
        workers: Where it sends heartbeats.
        spark: Its session.
        read: Gives the inputs of runs.
        writer: Writes results into classes.
        options: Its options.
    """

    def __init__(
        self,
        queue: RunQueue,
        workers: CatalogueWorkers,
        spark: SparkSession,
        read: InputReader,
        writer: ResultWriter,
        options: WorkerOptions,
    ) -> None:
        self._queue = queue
        self._workers = workers
        self._options = options
        self._thread = ThreadPoolExecutor(1, "run")
        self._context = WorkerContext(
            queue,
            spark,
            read,
            writer,
            self._thread,
            options.directory,
            options.lease_s,
            options.drain_s,
        )

    async def work(self, stopping: asyncio.Event) -> None:
        """Work until `stopping` is set.

        Raises:
            SessionDied: The session has died; the run under way is left to the next worker.
        """
        heartbeat = asyncio.create_task(self._send_heartbeats())
        try:
            while not stopping.is_set():
                await self._run_next(stopping)
        finally:
            heartbeat.cancel()
            self._thread.shutdown(wait=False)

    async def _run_next(self, stopping: asyncio.Event) -> None:
        try:
            run = await self._queue.take(self._options.lease_s)
            if run is not None:
                await RunExecution(self._context, run, stopping).run_to_end()
                return
        except Unavailable as error:
            _log.warning("the queue of runs cannot be reached: %s", error.detail)
        with suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), _IDLE_S)

    async def _send_heartbeats(self) -> None:
        """Send heartbeats, and remove expired runs."""
        reaped = 0.0
        while True:
            try:
                await self._workers.heartbeat(self._options.name, None)
                if monotonic() - reaped >= _REAP_S:
                    await self._reap()
                    reaped = monotonic()
            except Unavailable as error:
                _log.warning("the catalogue cannot be reached: %s", error.detail)
            await asyncio.sleep(_HEARTBEAT_S)

    async def _reap(self) -> None:
        """Remove expired runs, files first: files without a row would stay for ever."""
        expired = await self._queue.old(self._options.keep_s, _REAP_BATCH)
        for run in expired:
            directory = self._options.directory / run
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
        await self._queue.forget(expired)
