"""Private linkage on a GPU and cores gives the same result as on cores alone.

The GPU is Numba's simulator, in the Python processes that compare.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.gpu import ON_GPU
from spark_jobs.linkage.private import comparing
from spark_jobs.linkage.private.comparing import Task
from spark_jobs.linkage.private.spec import PrivateSpec
from tests.spark.linkage.test_private_linkage import (
    KIND,
    LEFT,
    RIGHT,
    THIRD,
    Link,
    SampleContext,
    brute,
    frame,
)

PARTIES = {name: {"file": f"{name}.csv"} for name in "abc"}
SIMULATED, NO_DEVICE = "NUMBA_ENABLE_CUDASIM", "NUMBA_DISABLE_CUDA"


def spec(**members: Any) -> PrivateSpec:
    return KIND.specification.parse({"parties": PARTIES, "threshold": "2/3", **members})


@pytest.fixture
def context(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SampleContext:
    """Three owners, so a block is on the left of some pairs and on the right of others.

    They take two waves.
    """
    monkeypatch.setattr(comparing, "BLOCK", 32)
    monkeypatch.setattr(comparing, "TASKS_AT_ONCE", 2)
    monkeypatch.setattr(comparing, "TIMES_ON_GPU", 1)
    monkeypatch.setattr(comparing, "slots_of", lambda _: 2)
    inputs = {n: frame(spark, rows) for n, rows in zip("abc", (LEFT, RIGHT, THIRD), strict=True)}
    return SampleContext(spark, tmp_path, inputs)


@pytest.fixture
def gpu(spark: SparkSession) -> Iterator[None]:
    yield
    spark.conf.unset(ON_GPU)
    spark.sparkContext.environment.pop(SIMULATED, None)
    spark.sparkContext.environment.pop(NO_DEVICE, None)


def compared(
    context: SampleContext, specification: PrivateSpec
) -> tuple[list[tuple[Any, ...]], dict[str, int]]:
    """Return the matches and counters of the comparison stage alone."""
    context.counters = Counter()
    scored = KIND.stages(specification)[2].run(context)
    assert scored is not None
    return sorted(tuple(row) for row in scored.collect()), context.counters


@pytest.fixture
def waves(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of tasks in each wave that one process executed."""
    batches, compare = list[int](), comparing.compare_in_one_process

    def record(blocks: DataFrame, tasks: Sequence[Task], *rest: Any) -> Any:
        batches.append(len(tasks))
        return compare(blocks, tasks, *rest)

    monkeypatch.setattr(comparing, "compare_in_one_process", record)
    return batches


def indexed(links: list[Link]) -> set[tuple[int, str, int, str, float]]:
    return {("abc".index(a), left, "abc".index(b), right, s) for a, left, b, right, s in links}


@pytest.mark.large  # a minute; other tests run the kernel itself in the simulator
@pytest.mark.usefixtures("gpu")
@pytest.mark.timeout(600)  # half a dozen stages, perhaps on a busy machine
def test_results_are_the_same_with_and_without_a_gpu(
    context: SampleContext, waves: list[int]
) -> None:
    for stage in KIND.stages(spec())[:2]:
        scored = stage.run(context)
        assert scored is not None
        scored.write.parquet(str(context.folder / stage.name))
    best, _ = compared(context, spec(top_k=2))
    assert (context.counters["on_gpu"], waves) == (0, [])

    environment = context.spark.sparkContext.environment
    environment[SIMULATED] = "1"
    context.spark.conf.set(ON_GPU, "always")
    assert compared(context, spec(top_k=2))[0] == best
    rows, counters = compared(context, spec())
    expected = indexed(brute(Fraction(2, 3), a=LEFT, b=RIGHT, c=THIRD))
    assert {(*row[:4], row[4] / row[5]) for row in rows} == expected
    assert len(rows) == len(expected) == counters["matches"]
    assert 0 < counters["on_gpu"] <= counters["pairs"]

    assert len(waves) > 2

    waves.clear()
    environment |= {SIMULATED: "0", NO_DEVICE: "1"}  # the GPU is lost: cores do everything
    repeated, without_gpu = compared(context, spec())
    assert repeated == rows
    assert without_gpu["after_length"] == counters["after_length"]
    assert without_gpu["on_gpu"] == 0
    assert len(waves) == 1
