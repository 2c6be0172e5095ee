"""A service whose streams Spark reads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mediator.stores.port import SystemConfig
from spark_jobs.sources.streams import StreamData
from tests.process.service import Service, service
from tests.spark.streams.database_streams import FIELDS, OTHER_CLASSES, Streams


@pytest.fixture(scope="module")
async def running(
    job_systems: list[SystemConfig], redis_config: SystemConfig, job_catalogue: str
) -> AsyncIterator[Service]:
    async with service(job_systems, job_catalogue, coordination_url=redis_config.url) as started:
        await started.favour()
        yield started


@pytest.fixture
async def streams(running: Service, spark: SparkSession, tmp_path: Path) -> Streams:
    spark.dataSource.register(StreamData)
    database = await running.put_schema({"people": {"fields": FIELDS}, **OTHER_CLASSES})
    return Streams(running, database, spark, tmp_path / "checkpoint")
