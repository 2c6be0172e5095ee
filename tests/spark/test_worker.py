"""A worker on a real catalogue: runs are done, cancelled, given back, and survive their worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession

from mediator.catalogue.connection import Catalogue
from mediator.catalogue.run_queue import RunQueue
from mediator.catalogue.runs import ENDED, CatalogueRuns, StoredRun
from mediator.catalogue.workers import CatalogueWorkers
from mediator.stores.port import SystemConfig
from spark_jobs.runner.port import Input
from spark_jobs.runner.results import ResultFiles
from spark_jobs.runner.worker import Worker, WorkerOptions
from tests.faults.conditions import eventually
from tests.process.service import scratch_catalogue

JOB = {"kind": "example.count", "spec": {"records": {"class": "people"}, "field": "city"}}


def unwritten(*_: Any) -> None:
    """Jobs here are written nowhere."""
    raise AssertionError


def people(spark: SparkSession, wanted: Input) -> DataFrame:
    """Stands for a class: what it holds is of no matter here."""
    return spark.createDataFrame(
        [("1", "Ulm"), ("2", "Ulm"), ("3", None)], "id string, city string"
    )


@dataclass
class Office:
    """A catalogue, a session, and a place for runs."""

    catalogue: Catalogue
    spark: SparkSession
    directory: Path
    runs: CatalogueRuns = field(init=False)

    def __post_init__(self) -> None:
        self.runs = CatalogueRuns(self.catalogue)

    async def submit(self, job: dict[str, Any] = JOB, *, dry_run: bool = False) -> str:
        run, _ = await self.runs.submit(
            uuid4().hex, "club", job, dry_run=dry_run, key=None, fingerprint=None
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
        directory = self.directory / run.id / "stages" / run.ending["result"]
        return ResultFiles(directory).page((0, 0), 100)[0]

    @asynccontextmanager
    async def worker(
        self, read: Callable[[SparkSession, Input], DataFrame] = people, **options: Any
    ) -> AsyncIterator[asyncio.Event]:
        """Let a worker work while the block runs; the event asks it to end."""
        ending = asyncio.Event()
        chosen = WorkerOptions(uuid4().hex, self.directory, **options)
        company = CatalogueWorkers(self.catalogue)
        worker = Worker(RunQueue(self.catalogue), company, self.spark, read, unwritten, chosen)
        work = asyncio.create_task(worker.work(ending))
        try:
            yield ending
        finally:
            ending.set()
            await work


@pytest.fixture
async def office(
    spark: SparkSession, postgresql_config: SystemConfig, tmp_path: Path
) -> AsyncIterator[Office]:
    async with scratch_catalogue(postgresql_config) as url:
        catalogue = Catalogue(url)
        await catalogue.open()
        try:
            yield Office(catalogue, spark, tmp_path)
        finally:
            await catalogue.close()


async def test_runs_are_done(office: Office) -> None:
    run, dry = await office.submit(), await office.submit(dry_run=True)
    small = await office.submit({**JOB, "limits": {"rows": 2}})
    unknown = await office.submit({**JOB, "kind": "example.none"})
    async with office.worker():
        done = await office.ended(run)
        assert done.state == "done"
        assert [row["rows"] for row in office.rows(done)] == [2, 1]
        assert done.ending["rows"] == 2
        assert done.ending["forecast"]["rows"] == {"records": 3}
        assert {stage["state"] for stage in done.progress["stages"]} == {"done"}
        assert done.progress["counters"] == {"values": 2}
        looked_at = await office.ended(dry)
        assert looked_at.state == "done"
        assert "result" not in looked_at.ending
        stopped = await office.ended(small)
        assert stopped.state == "stopped"
        assert "2 are allowed" in stopped.ending["reasons"][0]
        assert (await office.ended(unknown)).state == "failed"
        assert (await CatalogueWorkers(office.catalogue).seen(60)).working == 1


def endless(spark: SparkSession, wanted: Input) -> DataFrame:
    """An input that no patience reads."""

    def sleep(batches: Any) -> Any:
        import time

        for batch in batches:
            time.sleep(3600)
            yield batch

    return people(spark, wanted).mapInArrow(sleep, "id string, city string")


async def test_a_run_that_sleeps_is_cancelled(office: Office) -> None:
    run = await office.submit()
    async with office.worker(endless):
        await eventually(reading(office, run))
        await office.runs.cancel("club", run)
        assert (await office.ended(run)).state == "cancelled"
    await office.runs.resume("club", run)
    async with office.worker():
        assert len(office.rows(await office.ended(run))) == 2


async def test_a_worker_that_is_to_end_gives_its_run_back(office: Office) -> None:
    run = await office.submit()
    async with office.worker(endless, drain_s=0.0) as ending:
        await eventually(reading(office, run))
        ending.set()
    assert (await office.find(run)).state == "queued"
    async with office.worker():
        assert (await office.ended(run)).state == "done"


async def test_a_worker_that_lost_its_run_changes_nothing(office: Office) -> None:
    run = await office.submit()
    async with office.worker(endless):
        await eventually(reading(office, run))
        await office.runs.cancel("club", run)
        taken = await RunQueue(office.catalogue).take(60)
        assert taken is None
        await office.ended(run)
    assert (await office.find(run)).state == "cancelled"


def reading(office: Office, run: str) -> Callable[[], Any]:
    async def begun() -> bool:
        stages = (await office.find(run)).progress.get("stages", [])
        return bool(stages) and stages[0]["state"] == "running"

    return begun
