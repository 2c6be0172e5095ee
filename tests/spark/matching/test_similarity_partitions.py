"""Partitions of objects on Spark: as many as are allowed, in plans that Spark can carry out."""

from __future__ import annotations

from bisect import bisect_right
from random import Random

import pytest
from pyspark.sql import SparkSession

from spark_jobs.matching.similarity.partitions import partition_of, partitioned
from spark_jobs.matching.similarity.spec import SimilaritySpec

SPEC = SimilaritySpec.parse(
    {
        "left": {"file": "left.csv"},
        "right": {"file": "right.csv"},
        "blocking": {"keys": [{"field": "name"}]},
        "measures": [{"measure": "exact", "field": "name", "weight": 1.0}],
        "threshold": 0.5,
        "partition": 1,
        "border": 1,
    }
)


@pytest.mark.parametrize("count", [1, 2, 7, 8, 1_000])
def test_an_object_is_in_the_partition_that_begins_before_it(
    count: int, spark: SparkSession
) -> None:
    random = Random(count)
    starts = sorted(random.sample(range(2**62), count))
    near = [start + step for start in random.sample(starts, min(count, 9)) for step in (-1, 0, 1)]
    positions = [0, 2**62, *near, starts[0], starts[-1]]
    placed = spark.createDataFrame([(each,) for each in positions], "position long")
    rows = placed.withColumn("partition", partition_of("position", starts)).collect()
    expected = [(each, max(0, bisect_right(starts, each) - 1)) for each in positions]
    assert [(row["position"], row["partition"]) for row in rows] == expected


def test_hundreds_of_partitions_have_their_objects_and_copies(spark: SparkSession) -> None:
    """Neighbours in a chain: each partition owns one object, and has those near it."""
    count = 450
    rows = [(number << 40, number, [number, number + 1]) for number in range(count)]
    objects = spark.createDataFrame(rows, "position long, number long, touches array<long>")
    found = partitioned(objects, SPEC).select("partition", "number", "owned").collect()
    near = {(one, other) for one in range(count) for other in (one - 1, one + 1)}
    assert sorted(row[:2] for row in found if row["owned"]) == [(n, n) for n in range(count)]
    assert {row[:2] for row in found if not row["owned"]} == {
        pair for pair in near if 0 <= pair[1] < count
    }
