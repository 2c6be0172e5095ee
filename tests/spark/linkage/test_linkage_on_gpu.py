"""Private linkage with a GPU and cores: the comparison gives the same result as without a GPU.

The GPU is Numba's simulator of one, in the processes of Python that compare.
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


def spec(**given: Any) -> PrivateSpec:
    return KIND.specification.parse({"parties": PARTIES, "threshold": "2/3", **given})


@pytest.fixture
def context(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SampleContext:
    """Three owners, so that a block is the left one of some pairs and the right one of others.

    They make two waves.
    """
    monkeypatch.setattr(comparing, "BLOCK", 32)
    monkeypatch.setattr(comparing, "TASKS_AT_ONCE", 2)
    monkeypatch.setattr(comparing, "TIMES_ON_GPU", 1)
    monkeypatch.setattr(comparing, "slots_of", lambda _: 2)
    inputs = {n: frame(spark, of) for n, of in zip("abc", (LEFT, RIGHT, THIRD), strict=True)}
    return SampleContext(spark, tmp_path, inputs)


@pytest.fixture
def gpu(spark: SparkSession) -> Iterator[None]:
    yield
    spark.conf.unset(ON_GPU)
    spark.sparkContext.environment.pop(SIMULATED, None)
    spark.sparkContext.environment.pop(NO_DEVICE, None)


def compared(
    context: SampleContext, of: PrivateSpec
) -> tuple[list[tuple[Any, ...]], dict[str, int]]:
    """The matches, and what was counted of them, by the stage alone."""
    context.counters = Counter()
    scored = KIND.stages(of)[2].run(context)
    assert scored is not None
    return sorted(tuple(row) for row in scored.collect()), context.counters


@pytest.fixture
def waves(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tasks each wave had that went to one process."""
    batches, together = list[int](), comparing.compare_in_one_process

    def watched(blocks: DataFrame, tasks: Sequence[Task], *rest: Any) -> Any:
        batches.append(len(tasks))
        return together(blocks, tasks, *rest)

    monkeypatch.setattr(comparing, "compare_in_one_process", watched)
    return batches


def found(links: list[Link]) -> set[tuple[int, str, int, str, float]]:
    return {("abc".index(a), one, "abc".index(b), other, s) for a, one, b, other, s in links}


@pytest.mark.large  # a minute; the kernel itself is tested in the simulator, too
@pytest.mark.usefixtures("gpu")
@pytest.mark.timeout(600)  # half a dozen stages, on a machine that may be busy
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
    rows, counted = compared(context, spec())
    expected = found(brute(Fraction(2, 3), a=LEFT, b=RIGHT, c=THIRD))
    assert {(*row[:4], row[4] / row[5]) for row in rows} == expected
    assert len(rows) == len(expected) == counted["matches"]
    assert 0 < counted["on_gpu"] <= counted["pairs"]

    assert len(waves) > 2

    waves.clear()
    environment |= {SIMULATED: "0", NO_DEVICE: "1"}  # it is lost: cores do all
    again, without = compared(context, spec())
    assert again == rows
    assert without["after_length"] == counted["after_length"]
    assert without["on_gpu"] == 0
    assert len(waves) == 1
