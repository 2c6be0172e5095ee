"""Partitions of objects on Spark: as many as are allowed, in plans that Spark can carry out."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from random import Random

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.matching.similarity.partitions import (
    assign_owners,
    copies,
    partition_of,
    starts_of,
    with_copies,
)
from spark_jobs.matching.similarity.spec import SimilaritySpec
from spark_jobs.runner.port import InputUnfit

GIVEN = {
    "left": {"file": "left.csv"},
    "right": {"file": "right.csv"},
    "blocking": {"keys": [{"field": "name"}]},
    "measures": [{"measure": "exact", "field": "name", "weight": 1.0}],
    "threshold": 0.5,
    "partition": 1,
    "border": 1,
}
SPEC = SimilaritySpec.parse(GIVEN)
FIELDS = "side int, number long, position long, keys array<string>, joints array<long>"


def placed(spark: SparkSession, rows: Sequence[tuple[int, int, list[str], list[int]]]) -> DataFrame:
    """Objects of a side and a number, with keys and joints: each owned by a partition."""
    objects = spark.createDataFrame(
        [(side, number, number << 40, keys, joints) for side, number, keys, joints in rows], FIELDS
    )
    return assign_owners(objects, starts_of(objects, SPEC))


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
    own = placed(spark, [(0, number, [], [number, number + 1]) for number in range(count)])
    all_ = with_copies(own, copies(own, SPEC.border), SPEC)
    found = all_.select("partition", "number", "owned").collect()
    near = {(one, other) for one in range(count) for other in (one - 1, one + 1)}
    assert sorted(row[:2] for row in found if row["owned"]) == [(n, n) for n in range(count)]
    assert {row[:2] for row in found if not row["owned"]} == {
        pair for pair in near if 0 <= pair[1] < count
    }


def test_a_key_of_one_side_alone_makes_no_copies(spark: SparkSession) -> None:
    """Such as the type of a road, if the other source has none: all objects of a side have it."""
    own = placed(
        spark,
        [
            *((0, number, ["road"], []) for number in range(8)),
            (0, 8, ["road", "high"], []),
            (1, 9, ["high"], [1]),
            (1, 10, [], [1]),
        ],
    )
    assert sorted(copies(own, 1).collect()) == [(8, 9), (9, 8), (9, 10), (10, 9)]
    assert (10, 8) in sorted(copies(own, 2).collect())


def test_partitions_are_counted_before_their_objects_are_copied(spark: SparkSession) -> None:
    """A key of both sides that everything has: each object would be in each partition."""
    own = placed(spark, [(number % 2, number, ["road"], []) for number in range(30)])
    copied = copies(own, 1)
    assert copied.count() == 30 * 29
    limited = SimilaritySpec.parse({**GIVEN, "limits": {"partition_objects": 29}})
    with pytest.raises(InputUnfit, match=r"30 objects, and limits\.partition_objects is 29"):
        with_copies(own, copied, limited)
