"""Standing queries as one streaming query: the reference's results, through restarts and faults."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mediator.standing.runtime import Runtime
from mediator.standing.state import StreamTuple
from spark_jobs.standing.commits import StateDirectory
from spark_jobs.streaming_queries import Failed
from tests.spark.disk_limit import LIMIT, allow, restored_limit, spark_processes
from tests.spark.standing.feeds import (
    COUNT,
    DOCUMENT,
    count_results,
    random_tuples,
    reference_results,
    run,
    write,
)
from tests.unit.standing_spark.in_process import plan_of, results_in

MONTH_S = 30 * 86_400


@pytest.mark.timeout(900)
def test_results_and_costs_are_the_references_through_a_restart_with_another_plan(
    spark: SparkSession, tmp_path: Path
) -> None:
    draw, reference = Random(3), Runtime(DOCUMENT["streams"], 3, 1.0)
    expected: Counter[Any] = Counter()
    for first, materialise in ((0, False), (2, True)):
        plan = plan_of(DOCUMENT, materialise=materialise)
        reference.activate(plan)
        before = Counter(reference.sent)
        for batch in (random_tuples(COUNT * n, draw) for n in (first, first + 1)):
            write(tmp_path / "tuples", batch, draw)
            expected += Counter(reference_results(reference, batch))
        if first == 0:  # later files can be much older
            for number, path in enumerate(sorted((tmp_path / "tuples").iterdir())):
                os.utime(path, (MONTH_S + number, MONTH_S + number))
        commit = run(spark, tmp_path, plan)
        assert sum(commit.sent) == (reference.sent - before).total()
        assert commit.rows == sum(reference.sizes().values())
        results = spark.read.parquet(str(tmp_path / "state" / "results"))
        assert count_results([row.asDict() for row in results.collect()]) == expected
    assert commit.batch == 3
    assert expected.total() == commit.results > 100


@pytest.mark.timeout(900)
def test_a_fault_fails_the_query_and_the_next_one_continues(
    spark: SparkSession, tmp_path: Path
) -> None:
    draw, plan = Random(4), plan_of(DOCUMENT)
    first, second = random_tuples(0, draw), random_tuples(COUNT, draw)
    write(tmp_path / "tuples", first, draw)
    commit = run(spark, tmp_path, plan)
    committed = count_results(results_in(tmp_path / "state"))

    write(tmp_path / "tuples", second, draw)
    # The processes that write state; the JVM writes the checkpoint.
    processes = spark_processes()[1:]
    with restored_limit(processes):
        allow(processes, LIMIT)
        with pytest.raises(Failed, match="The disk is full"):
            run(spark, tmp_path, plan)
    assert StateDirectory(tmp_path / "state").latest() == commit
    assert count_results(results_in(tmp_path / "state")) == committed

    # The checkpoint has the batch, so this batch is repeated.
    assert run(spark, tmp_path, plan).batch == 1
    reference = Runtime(DOCUMENT["streams"], 3, 1.0)
    reference.activate(plan)
    expected = Counter(reference_results(reference, first))
    expected += Counter(reference_results(reference, second))
    assert count_results(results_in(tmp_path / "state")) == expected

    write(tmp_path / "tuples", [(2 * COUNT, StreamTuple("Z", 3.0, {}))], draw)
    with pytest.raises(Failed, match="there is no stream Z"):
        run(spark, tmp_path, plan)
    assert StateDirectory(tmp_path / "state").latest().batch == 1


@pytest.mark.timeout(900)
def test_a_directory_is_not_a_glob_pattern(spark: SparkSession, tmp_path: Path) -> None:
    draw, plan, reference = Random(6), plan_of(DOCUMENT), Runtime(DOCUMENT["streams"], 3, 1.0)
    reference.activate(plan)
    tuples = random_tuples(0, draw)
    for name, batch in (("run1", random_tuples(COUNT, draw)), ("run[1]{a,b}*?", tuples)):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "tuples", batch, draw)
    run(spark, tmp_path / "run[1]{a,b}*?", plan)
    results = count_results(results_in(tmp_path / "run[1]{a,b}*?" / "state"))
    assert results == Counter(reference_results(reference, tuples)) != Counter()
