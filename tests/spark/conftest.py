"""One Spark session for the whole run.

``PORTOLAN_TEST_SPARK`` names a Spark Connect server to use instead: `test_over_connect` starts one
and runs the tests marked ``connect`` a second time in a separate process, because a process is
either classic or Connect.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mediator.catalogue.connection import Catalogue
from mediator.stores.port import SystemConfig
from spark_jobs.session import SparkOptions, open_session
from spark_jobs.sources.classes import CATALOGUE
from spark_jobs.sources.stream_request import COORDINATION
from tests.process.service import scratch_catalogue, scratch_systems
from tests.spark.office import Office

# Spark processes inherit the environment of their first session. It names one catalogue, which is
# created first and used by all tests that read classes.
ODD = "a=b: c\\d é # !\n\"e'"
_CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing"
SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.portolan.odd": ODD,
    # Code generation takes longer than a few hundred rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Tests do not look at plans.
    "spark.sql.ui.explainMode": "simple",
    # The default starts some twenty processes, such as `readlink`, for the files of a batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{_CHECKPOINTING}.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}


@pytest.fixture(scope="session")
async def job_catalogue(postgresql_config: SystemConfig) -> AsyncIterator[str]:
    """URL of the catalogue in the environment of tasks."""
    async with scratch_catalogue(postgresql_config) as url:
        yield url


@pytest.fixture(scope="session")
async def job_systems(
    redis_config: SystemConfig, postgresql_config: SystemConfig, mongodb_config: SystemConfig
) -> AsyncIterator[list[SystemConfig]]:
    """The systems of that catalogue, with one namespace each."""
    async with scratch_systems(redis_config, postgresql_config, mongodb_config) as configs:
        yield configs


@pytest.fixture(scope="session")
def spark(job_catalogue: str, redis_config: SystemConfig) -> Iterator[SparkSession]:
    """The session, on two cores; a task is attempted up to four times."""
    os.environ[CATALOGUE] = job_catalogue
    os.environ[COORDINATION] = redis_config.url
    master = os.environ.get("PORTOLAN_TEST_SPARK", "local[2,4]")
    session = open_session(SparkOptions(master, SMALL))
    yield session
    session.stop()
    del os.environ[CATALOGUE], os.environ[COORDINATION]


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
