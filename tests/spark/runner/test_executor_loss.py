"""A run on a cluster continues after one of its executors is killed, with the same result."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from spark_jobs.runner.conformance import SampleJob, run_sample
from spark_jobs.runner.run_directory import RunDirectory
from tests.spark.cluster import ClusterRun, executor_of
from tests.spark.linkage.paused_linkage import KIND, Pauses

PEOPLE: Final = 300


def encoded(party: str, flips: int) -> Iterator[str]:
    """Yield one owner's records as CSV lines; the other owner's differ in two bits of 64."""
    yield "id,clk"
    for n in range(1, PEOPLE + 1):
        bits = (0x0F1E2D3C4B5A6978 * n) % 2**64 ^ flips
        yield f"{party}{n},{b64encode(bits.to_bytes(8)).decode()}"


@pytest.fixture
def sample(tmp_path: Path) -> SampleJob:
    sources = {}
    for party, flips in (("left", 0), ("right", 0b101)):
        file = tmp_path / f"{party}.csv"
        file.write_text("\n".join(encoded(party, flips)))
        sources[party] = {"file": str(file)}
    return SampleJob("linkage.private", {**sources, "threshold": "4/5"}, ordered=True)


@pytest.mark.timeout(900)  # five Spark processes start, perhaps on a busy machine
async def test_a_run_survives_the_loss_of_an_executor(
    sample: SampleJob, spark: SparkSession, tmp_path: Path
) -> None:
    """The executor is killed during a task, which another executor repeats."""
    expected = run_sample(sample, spark, RunDirectory(tmp_path / "whole"))
    assert len(expected) >= PEOPLE
    pauses = Pauses.start(tmp_path / "pauses")
    job = {**sample.document, "kind": KIND}
    async with ClusterRun.started(job, tmp_path, pauses.environment()) as run:
        while not pauses.tasks():
            assert run.process.returncode is None, run.log
            await asyncio.sleep(0.1)
        partition, process = pauses.tasks()[0]
        executor_of(process).kill()
        pauses.end()
        assert await run.process.wait() == 0, run.log
        assert run.out.read_text().splitlines() == expected
        processes = {process for number, process in pauses.tasks() if number == partition}
        assert len(processes) > 1, "the task was not repeated"
