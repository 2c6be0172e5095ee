"""A worker: takes runs from the queue, one at a time, and carries them out on its session.

Whatever happens to it, no run is lost, and none appears by halves (`mediator.catalogue.runs` and
`run_directory` tell why). When it is asked to end it takes no more runs, gives the one under way
some time, and then gives it back: another worker goes on behind the stages that were finished.
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
from mediator.catalogue.run_queue import RunQueue
from mediator.catalogue.workers import CatalogueWorkers
from spark_jobs.runner.execution import InputReader, ResultWriter
from spark_jobs.runner.shift import Bench, Shift

__all__ = ["Worker", "WorkerOptions"]

_log = logging.getLogger("portolan.jobs")

_IDLE_S: Final = 0.5
_GREET_S: Final = 5.0
_REAP_S: Final = 600.0
_REAPED_AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How a worker works.

    Attributes:
        name: Its name, which no other worker has.
        directory: Where runs keep what they finished; the same for all workers and all replicas.
        lease_s: Seconds after which the run of a worker that says nothing is given to another.
        drain_s: Seconds that the run under way is given when the worker is to end.
        keep_s: Seconds for which a run is kept after its end.
    """

    name: str
    directory: Path
    lease_s: float = 15.0
    drain_s: float = 20.0
    keep_s: float = 7 * 86_400.0


class Worker:
    """Carries out runs until it is asked to end.

    Args:
        queue: Where runs come from.
        workers: Where it says that it is there.
        spark: Its session.
        read: Gives the inputs of runs.
        writer: Writes results into classes.
        options: How it works.
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
        self._bench = Bench(
            queue,
            spark,
            read,
            writer,
            self._thread,
            options.directory,
            options.lease_s,
            options.drain_s,
        )

    async def work(self, ending: asyncio.Event) -> None:
        """Work until `ending` is set.

        Raises:
            SessionDied: The session has died; the run under way is left to whoever comes next.
        """
        company = asyncio.create_task(self._keep_company())
        try:
            while not ending.is_set():
                await self._turn(ending)
        finally:
            company.cancel()
            self._thread.shutdown(wait=False)

    async def _turn(self, ending: asyncio.Event) -> None:
        try:
            taken = await self._queue.take(self._options.lease_s)
            if taken is not None:
                await Shift(self._bench, taken, ending).work()
                return
        except Unavailable as error:
            _log.warning("the queue of runs cannot be reached: %s", error.detail)
        with suppress(TimeoutError):
            await asyncio.wait_for(ending.wait(), _IDLE_S)

    async def _keep_company(self) -> None:
        """Say that the worker is there, and clear away what nobody wants any more."""
        reaped = 0.0
        while True:
            try:
                await self._workers.greet(self._options.name, None)
                if monotonic() - reaped >= _REAP_S:
                    await self._reap()
                    reaped = monotonic()
            except Unavailable as error:
                _log.warning("the catalogue cannot be reached: %s", error.detail)
            await asyncio.sleep(_GREET_S)

    async def _reap(self) -> None:
        """Remove files first: a row without files says so, files without a row stay for ever."""
        old = await self._queue.old(self._options.keep_s, _REAPED_AT_ONCE)
        for run in old:
            directory = self._options.directory / run
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
        await self._queue.forget(old)
