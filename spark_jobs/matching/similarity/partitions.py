"""Partitions of objects by count, with copies of those beyond their borders.

Objects touch *keys* and *joints*: those that touch the same are candidates or neighbours of each
other. A border is so many such steps wide. The work follows the length of the borders: what is
touched within one partition only is not followed.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.matching.similarity.spec import SimilaritySpec
from spark_jobs.runner.port import InputUnfit

__all__ = ["expanded", "partitioned", "touching"]

_MOST_PARTITIONS: Final = 1_000
_ACCURACY: Final = 10_000


def partitioned(objects: DataFrame, spec: SimilaritySpec) -> DataFrame:
    """Assign objects to partitions: ``partition``, ``side``, ``id``, ``owned``.

    An object is owned by one partition, and copied to those whose border is near.

    Raises:
        InputUnfit: A partition has more objects than the limit: too much is alike.
    """
    owned = _owned(objects, spec)
    touches = touching(owned)
    found = owned.select("partition", "side", "id", f.lit(True).alias("owned"))
    copies = _copies(touches, spec.border)
    return _bounded(found.unionByName(copies.withColumn("owned", f.lit(False))), spec)


def touching(objects: DataFrame) -> DataFrame:
    """A row for each key and joint of an object: ``touch``, besides the other columns."""
    keys = f.transform("keys", lambda key: f.concat(f.lit("k"), key))
    joints = f.transform("joints", lambda joint: f.concat(f.lit("j"), "side", f.lit(":"), joint))
    return objects.withColumn("touch", f.explode(f.concat(keys, joints))).drop(
        "keys", "joints", "record"
    )


def expanded(start: DataFrame, touches: DataFrame, steps: int) -> DataFrame:
    """What is so many steps from objects: (``partition``, ``side``, ``id``), each once."""
    reached = [start]
    for _ in range(steps):
        touched = reached[-1].join(touches, ["side", "id"]).select("partition", "touch").distinct()
        near = touched.join(touches, "touch").select("partition", "side", "id")
        reached.append(near.distinct())
    return reduce(DataFrame.unionByName, reached).distinct()


def _owned(objects: DataFrame, spec: SimilaritySpec) -> DataFrame:
    """Cut the positions into ranges of about equal counts."""
    count = min(_MOST_PARTITIONS, -(-objects.count() // spec.partition))
    cuts = _cuts(objects, count) if count > 1 else []
    below = [(f.col("position") > cut).cast("int") for cut in cuts]
    number = reduce(lambda one, other: one + other, below, f.lit(0))
    return objects.select(number.alias("partition"), "side", "id", "keys", "joints")


def _cuts(objects: DataFrame, count: int) -> list[int]:
    shares = f.array(*(f.lit(at / count) for at in range(1, count)))
    row = objects.agg(f.percentile_approx("position", shares, _ACCURACY)).first()
    return sorted({*(row[0] or ())}) if row else []


def _copies(touches: DataFrame, border: int) -> DataFrame:
    """Objects that other partitions own, for each partition that is near them."""
    ends = touches.groupBy("touch").agg(
        f.min("partition").alias("a"), f.max("partition").alias("b")
    )
    crossing = touches.join(ends.where("a != b").select("touch"), "touch")
    near = crossing.select("partition", "touch").distinct()
    first = near.join(crossing.drop("partition"), "touch").select("partition", "side", "id")
    owners = touches.select("side", "id", f.col("partition").alias("owner")).distinct()
    plain = touches.drop("partition")
    reached = expanded(first.distinct(), plain, border - 1).join(owners, ["side", "id"])
    return reached.where("owner != partition").select("partition", "side", "id")


def _bounded(placed: DataFrame, spec: SimilaritySpec) -> DataFrame:
    sizes = placed.groupBy("partition").count().agg(f.max("count")).first()
    largest = 0 if sizes is None else sizes[0] or 0
    if largest > spec.limits.partition_objects:
        raise InputUnfit(
            f"A partition has {largest:,} objects, and limits.partition_objects is "
            f"{spec.limits.partition_objects:,}: too many have equal keys, or lie at one place."
        )
    return placed
