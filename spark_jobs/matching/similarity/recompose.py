"""Recomposes the links of partitions: each object is in one row of the result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_jobs.runner.port import StageContext

__all__ = ["recomposed"]


def recomposed(context: StageContext, explanation: Column, settings: str) -> DataFrame:
    """Return the result: links, and a row for each object without one.

    `settings` goes into the fingerprints.
    """
    read = context.output("objects")
    links = _free_of_conflicts(context)
    both = links.unionByName(_decided(read))
    members = _members(both).select("side", "id")
    alone = read.join(members, ["side", "id"], "left_anti")
    rows = both.unionByName(_unmatched(alone)).withColumn("row", _row_id())
    _check(rows, read)
    return rows.join(_fingerprints(rows, read, settings), "row", "left").select(
        f.col("row").alias("id"),
        "left",
        "right",
        "outcome",
        "similarity",
        _listed_terms().alias("terms"),
        explanation.alias("why"),
        "fingerprint",
    )


def _listed_terms() -> Column:
    return f.transform(
        f.map_entries("terms"),
        lambda each: f.struct(each["key"].alias("measure"), each["value"].alias("similarity")),
    )


def _free_of_conflicts(context: StageContext) -> DataFrame:
    """Of links that share an object keep the most similar one, then the one with the least ids."""
    found = context.output("match").where("kind = 'link'")
    links = found.select(
        "left", "right", f.lit("similarity").alias("outcome"), "similarity", "terms"
    ).withColumn("row", _row_id())
    members = _members(links)
    shared = members.groupBy("side", "id").agg(f.count("*").alias("n")).where("n > 1")
    contested = members.join(shared, ["side", "id"]).select("row").distinct()
    sorted_ = (
        links.join(contested, "row")
        .repartition(1)  # what borders leave to decide is little
        .sortWithinPartitions(f.desc("similarity"), "left", "right")
    )
    kept = sorted_.mapInArrow(_first_come, sorted_.schema)
    clear = links.join(contested, "row", "left_anti")
    return clear.unionByName(kept).drop("row")


def _first_come(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Keep each link whose objects are in none before it."""
    taken: set[tuple[str, str]] = set()
    for batch in batches:
        kept = []
        for row in batch.select(["left", "right"]).to_pylist():
            ids = {(side, id_) for side in ("left", "right") for id_ in row[side]}
            kept.append(taken.isdisjoint(ids))
            if kept[-1]:
                taken |= ids
        yield batch.filter(pa.array(kept, pa.bool_()))


def _decided(read: DataFrame) -> DataFrame:
    ids = (
        f.sort_array(f.collect_list(f.when(f.col("side") == at, f.col("id")))).alias(side)
        for at, side in enumerate(("left", "right"))
    )
    grouped = read.where(f.col("link").isNotNull()).groupBy("link").agg(*ids)
    return grouped.select("left", "right", f.lit("must").alias("outcome"), *_no_similarity())


def _unmatched(alone: DataFrame) -> DataFrame:
    sides = (
        f.when(f.col("side") == at, f.array("id")).otherwise(f.array().cast("array<string>"))
        for at in range(2)
    )
    left, right = sides
    outcome = f.lit("unmatched").alias("outcome")
    return alone.select(left.alias("left"), right.alias("right"), outcome, *_no_similarity())


def _no_similarity() -> tuple[Column, Column]:
    return (
        f.lit(None).cast("double").alias("similarity"),
        f.lit(None).cast("map<string,double>").alias("terms"),
    )


def _row_id() -> Column:
    """Name a row by its first object, which is in no other row."""
    left = f.concat(f.lit("left:"), f.try_element_at("left", f.lit(1)))
    return f.coalesce(left, f.concat(f.lit("right:"), f.try_element_at("right", f.lit(1))))


def _members(rows: DataFrame) -> DataFrame:
    """A row for each object: ``side``, ``id``, and ``row`` if there is one."""
    kept = [name for name in rows.columns if name == "row"]
    left, right = (
        rows.select(*kept, f.lit(at).alias("side"), f.explode(side).alias("id"))
        for at, side in enumerate(("left", "right"))
    )
    return left.unionByName(right)


def _check(rows: DataFrame, read: DataFrame) -> None:
    """Assert that every object is in exactly one row."""
    members = _members(rows)
    counted = members.agg(f.count("*"), f.count_distinct("side", "id")).first()
    assert counted is not None
    assert counted[0] == counted[1] == read.count(), "an object is not in exactly one row"


def _fingerprints(rows: DataFrame, read: DataFrame, settings: str) -> DataFrame:
    """Hash what decided about the objects of a row."""
    joined = _members(rows).join(read.select("side", "id", "fingerprint"), ["side", "id"])
    sorted_ = f.array_join(f.sort_array(f.collect_list("fingerprint")), ",")
    whole = f.concat(f.lit(settings), sorted_)
    return joined.groupBy("row").agg(f.sha2(whole, 256).alias("fingerprint"))
