"""`portolan standing stream` on a cluster: results survive killed executors and drivers."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
from pyspark.sql import SparkSession

from mediator.standing.runtime import Runtime
from spark_jobs.standing.commits import StateDirectory
from tests.spark.cluster import command_on_cluster, executors
from tests.spark.standing.feeds import (
    COUNT,
    DOCUMENT,
    count_results,
    random_tuples,
    reference_results,
    run,
    write_json,
)
from tests.unit.standing_spark.in_process import plan_of, results_in

BATCHES = 6


@pytest.mark.timeout(900)  # five Spark processes start, perhaps on a busy machine
async def test_results_are_exact_after_an_executor_and_the_driver_are_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    draw, plan = Random(5), plan_of(DOCUMENT)
    reference = Runtime(DOCUMENT["streams"], 3, 1.0)
    reference.activate(plan)
    expected: Counter[Any] = Counter()
    for number in range(BATCHES):
        batch = random_tuples(COUNT * number, draw)
        write_json(tmp_path / "tuples", batch, draw)
        expected += Counter(reference_results(reference, batch))
    queries, state = tmp_path / "queries.json", tmp_path / "state"
    queries.write_bytes(orjson.dumps(DOCUMENT))
    command = ("standing", "stream", queries, tmp_path / "tuples", state)
    log = tmp_path / "log"

    async with command_on_cluster(command, tmp_path, {}) as driver:

        async def wait_for_commit(batch: int) -> None:
            while StateDirectory(state).latest().batch < batch:
                assert driver.returncode is None, log.read_text()
                await asyncio.sleep(0.02)

        await wait_for_commit(0)
        executors(driver.pid)[0].kill()
        await wait_for_commit(2)
    commit = await asyncio.to_thread(run, spark, tmp_path, plan, "json")
    assert commit.batch == BATCHES - 1
    assert count_results(results_in(state)) == expected
