"""Partitions of objects on Spark: up to the limit, in plans that Spark can execute."""

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

DOCUMENT = {
    "left": {"file": "left.csv"},
    "right": {"file": "right.csv"},
    "blocking": {"keys": [{"field": "name"}]},
    "measures": [{"measure": "exact", "field": "name", "weight": 1.0}],
    "threshold": 0.5,
    "partition": 1,
    "border": 1,
}
SPEC = SimilaritySpec.parse(DOCUMENT)
FIELDS = "side int, number long, position long, keys array<string>, joints array<long>"


def partitioned(
    spark: SparkSession, rows: Sequence[tuple[int, int, list[str], list[int]]]
) -> DataFrame:
    """Return objects (side, number, keys, joints), each owned by a partition."""
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
    boundaries = [
        start + step for start in random.sample(starts, min(count, 9)) for step in (-1, 0, 1)
    ]
    positions = [0, 2**62, *boundaries, starts[0], starts[-1]]
    placed = spark.createDataFrame([(position,) for position in positions], "position long")
    rows = placed.withColumn("partition", partition_of("position", starts)).collect()
    expected = [(position, max(0, bisect_right(starts, position) - 1)) for position in positions]
    assert [(row["position"], row["partition"]) for row in rows] == expected


def test_hundreds_of_partitions_have_their_objects_and_copies(spark: SparkSession) -> None:
    """A chain of neighbours: each partition owns one object and has copies of its neighbours."""
    count = 450
    owned = partitioned(spark, [(0, number, [], [number, number + 1]) for number in range(count)])
    objects = with_copies(owned, copies(owned, SPEC.border), SPEC)
    rows = objects.select("partition", "number", "owned").collect()
    neighbours = {
        (number, neighbour) for number in range(count) for neighbour in (number - 1, number + 1)
    }
    assert sorted(row[:2] for row in rows if row["owned"]) == [(n, n) for n in range(count)]
    assert {row[:2] for row in rows if not row["owned"]} == {
        pair for pair in neighbours if 0 <= pair[1] < count
    }


def test_a_key_of_one_side_alone_makes_no_copies(spark: SparkSession) -> None:
    """For example a road type that all objects of one source have and none of the other."""
    owned = partitioned(
        spark,
        [
            *((0, number, ["road"], []) for number in range(8)),
            (0, 8, ["road", "high"], []),
            (1, 9, ["high"], [1]),
            (1, 10, [], [1]),
        ],
    )
    assert sorted(copies(owned, 1).collect()) == [(8, 9), (9, 8), (9, 10), (10, 9)]
    assert (10, 8) in sorted(copies(owned, 2).collect())


def test_partitions_are_counted_before_their_objects_are_copied(spark: SparkSession) -> None:
    """All objects of both sides share a key: each would be copied into each partition."""
    owned = partitioned(spark, [(number % 2, number, ["road"], []) for number in range(30)])
    copied = copies(owned, 1)
    assert copied.count() == 30 * 29
    limited = SimilaritySpec.parse({**DOCUMENT, "limits": {"partition_objects": 29}})
    with pytest.raises(InputUnfit, match=r"30 objects, and limits\.partition_objects is 29"):
        with_copies(owned, copied, limited)
