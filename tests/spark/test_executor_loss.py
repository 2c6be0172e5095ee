"""A run on a cluster goes on when one of its executors is killed, and comes to the same result."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

import orjson
import pytest
from pyspark.sql import SparkSession

from spark_jobs.runner.conformance import Trial, run_trial
from spark_jobs.runner.run_directory import RunDirectory
from tests.faults.conditions import eventually
from tests.spark.cluster import ClusterRun

PEOPLE: Final = 300
VICTIM: Final = "1"


def encoded(party: str, flips: int) -> Iterator[str]:
    """One owner's records as lines of CSV; the other's differ in two bits of 64."""
    yield "id,clk"
    for n in range(1, PEOPLE + 1):
        bits = (0x0F1E2D3C4B5A6978 * n) % 2**64 ^ flips
        yield f"{party}{n},{b64encode(bits.to_bytes(8)).decode()}"


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    sources = {}
    for party, flips in (("left", 0), ("right", 0b101)):
        file = tmp_path / f"{party}.csv"
        file.write_text("\n".join(encoded(party, flips)))
        sources[party] = {"file": str(file)}
    return Trial("linkage.private", {**sources, "threshold": "4/5"}, ordered=True)


@pytest.mark.timeout(900)  # five processes of Spark start, on a machine that may be busy
async def test_a_run_outlives_an_executor(
    trial: Trial, spark: SparkSession, tmp_path: Path
) -> None:
    """It is stopped first, so that the task that it is given is not done when it is killed."""
    expected = run_trial(trial, spark, RunDirectory(tmp_path / "whole"))
    assert len(expected) >= PEOPLE
    kept = tmp_path / "run"
    async with ClusterRun.started(trial, kept, tmp_path) as run:

        async def has_a_task() -> bool:
            tasks: int = (await run.executors())[VICTIM]["activeTasks"]
            return tasks > 0

        await eventually(run.complete)
        for stage in ("read left", "read right", "forecast", "order"):
            await eventually(finished(kept, stage))
        victim = run.executor(VICTIM)
        victim.suspend()
        await eventually(has_a_task)
        assert not await finished(kept, "links")()
        victim.kill()
        assert await run.process.wait() == 0, run.log
        assert run.out.read_text().splitlines() == expected


def finished(directory: Path, stage: str) -> Callable[[], Awaitable[bool]]:
    """Whether a run has kept a stage: its manifest names it."""
    manifest = directory / "manifest-000001.json"

    async def kept() -> bool:
        try:
            return stage in orjson.loads(manifest.read_bytes())["stages"]
        except FileNotFoundError:
            return False

    return kept
