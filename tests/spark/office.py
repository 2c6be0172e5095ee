"""A catalogue, a Spark session, and workers that execute runs on them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from mediator.catalogue.connection import Catalogue
from mediator.catalogue.run_queue import CatalogueWorkers, RunQueue
from mediator.catalogue.runs import ENDED, CatalogueRuns, StoredRun
from spark_jobs.runner.attempt import ResultWriter
from spark_jobs.runner.job import STORED_VERSION, Into
from spark_jobs.runner.port import ColumnType, Input, InputUnfit, StageContext
from spark_jobs.runner.results import ResultFiles
from spark_jobs.runner.worker import Worker, WorkerOptions
from spark_jobs.session import LazySession
from tests.faults.conditions import WITHIN_S, eventually

__all__ = ["JOB", "ClassStandIn", "Office", "people"]

JOB = {"kind": "example.count", "spec": {"records": {"class": "people"}, "field": "city"}}


def people(spark: SparkSession, input_: Input) -> DataFrame:
    """Stand in for a class; its content does not matter."""
    return spark.createDataFrame(
        [("1", "Ulm"), ("2", "Ulm"), ("3", None)], "id string, city string"
    )


@dataclass
class ClassStandIn:
    """Stands in for a class that receives results.

    Attributes:
        mismatch: Why no result fits the class; None: every result fits.
        failure: Why writes fail; None: they succeed.
        rows: The written rows.
        results: The names of the results whose write was attempted.
    """

    mismatch: str | None = None
    failure: str | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    results: list[str] = field(default_factory=list)

    def check(self, _into: Into, _columns: Mapping[str, ColumnType]) -> None:
        if self.mismatch is not None:
            raise InputUnfit(self.mismatch)

    def write(self, context: StageContext, result: str, _into: Into, files: ResultFiles) -> None:
        self.results.append(result)
        context.progress(0, 1)
        if self.failure is not None:
            raise RuntimeError(self.failure)
        self.rows.extend(files.page((0, 0), 100)[0])


@dataclass
class Office:
    """A catalogue, a Spark session, and a directory for runs."""

    catalogue: Catalogue
    spark: SparkSession
    directory: Path
    runs: CatalogueRuns = field(init=False)

    def __post_init__(self) -> None:
        self.runs = CatalogueRuns(self.catalogue)

    async def submit(self, job: dict[str, Any] = JOB, *, dry_run: bool = False) -> str:
        document = {"version": STORED_VERSION, "job": job}
        run, _ = await self.runs.submit(
            uuid4().hex, ("club", "club"), document, dry_run=dry_run, key=None, fingerprint=None
        )
        return run.id

    async def find(self, run: str) -> StoredRun:
        return await self.runs.find("club", run)

    async def ended(self, run: str) -> StoredRun:
        async def has_ended() -> bool:
            return (await self.find(run)).state in ENDED

        await eventually(has_ended)
        return await self.find(run)

    def rows(self, run: StoredRun) -> list[dict[str, Any]]:
        directory = self.directory / run.id / "stages" / run.outcome["result"]
        return ResultFiles(directory).page((0, 0), 100)[0]

    @asynccontextmanager
    async def worker(
        self,
        read: Callable[[SparkSession, Input], DataFrame] = people,
        writer: ResultWriter | None = None,
        session: LazySession | None = None,
        queue: RunQueue | None = None,
        **options: Any,
    ) -> AsyncIterator[asyncio.Event]:
        """Run a worker during the block; the yielded event stops it."""
        stopping = asyncio.Event()
        worker_options = WorkerOptions(uuid4().hex, self.directory, **options)
        workers = CatalogueWorkers(self.catalogue)
        worker = Worker(
            queue or RunQueue(self.catalogue),
            workers,
            session or LazySession.of(self.spark),
            read,
            writer or ClassStandIn(),
            worker_options,
        )
        work = asyncio.create_task(worker.work(stopping))
        try:
            yield stopping
        finally:
            stopping.set()
            await asyncio.wait_for(work, WITHIN_S)
