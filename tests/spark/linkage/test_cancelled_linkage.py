"""A linkage is cancelled in each of its stages, from reading to writing, and resumed each time."""

from __future__ import annotations

import asyncio
from queue import Queue
from typing import Final

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.runner import worker
from spark_jobs.runner.control import Control
from spark_jobs.runner.port import Input
from tests.spark.office import ClassStandIn, Office

JOB: Final = {
    "kind": "linkage.private",
    "spec": {"left": {"class": "ours"}, "right": {"class": "theirs"}, "threshold": 1},
    "into": {"class": "links", "id": ["left", "right"]},
}
STAGES: Final = (
    "read left", "read right", "forecast", "order", "blocks", "compare", "links", "write links",
)  # fmt: skip
SHARED_PEOPLE: Final = 3


def encoded(spark: SparkSession, input_: Input) -> DataFrame:
    """Stand in for two classes that share some people."""
    first = 1 if input_.name == "left" else 6 - SHARED_PEOPLE
    rows = [(f"{input_.name}{n}", bytes([n]) * 8) for n in range(first, first + 5)]
    return spark.createDataFrame(rows, "id string, clk binary")


@pytest.mark.timeout(900)  # eight stages are started twice, perhaps on a busy machine
async def test_a_linkage_is_cancelled_in_each_stage(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each stage is paused at its start, until its run has seen the cancellation."""
    start, unpaused, started = Control.start, {*STAGES}, Queue[str]()
    target = ClassStandIn()

    def hold(control: Control, name: str) -> None:
        start(control, name)
        if name in unpaused:
            unpaused.remove(name)
            started.put(name)
            assert control.wait_for_cancel(120)

    monkeypatch.setattr(Control, "start", hold)
    monkeypatch.setattr(worker, "RUN_HEARTBEAT_S", 0.2)
    run = await office.submit(JOB)
    async with office.worker(encoded, target):
        for stage in STAGES:
            assert await asyncio.to_thread(started.get, timeout=120) == stage
            await office.runs.cancel("club", run)
            ended = await office.ended(run)
            assert ended.state == "cancelled", (stage, ended)
            assert not {"result", "rows"} & {*ended.outcome}, stage
            states = {stage["name"]: stage["state"] for stage in ended.progress["stages"]}
            assert states[stage] == "running", states
            assert target.rows == []
            await office.runs.resume("club", run)
        done = await office.ended(run)
    assert (done.state, done.attempt) == ("done", len(STAGES) + 1)
    links = {(row["left"], row["right"]) for row in office.rows(done)}
    assert links == {(f"left{n}", f"right{n}") for n in range(6 - SHARED_PEOPLE, 6)}
    assert target.rows == office.rows(done)
