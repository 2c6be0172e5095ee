"""Recomposes the links of partitions: each object is in one row of the result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_jobs.result_ids import result_id_column
from spark_jobs.runner.port import StageContext

__all__ = ["first_come", "recomposed"]


def recomposed(context: StageContext, explanation: Column) -> DataFrame:
    """Return the result: links, and a row for each object without one.

    Rows are made of objects, of which each occurs once; a task that finds one in two links fails.
    """
    matched = context.output("match")
    links = _resolved(matched.where("kind = 'link'"))
    found = links.where("kept").select(_left_id("first"), "similarity", "terms")
    rows = _rows(context.output("partitions").where("owned"), _of_objects(links))
    known = matched.where("kind = 'partition'").select("partition", "fingerprint")
    joined = rows.join(found, "id", "left").join(f.broadcast(known), "partition", "left")
    return joined.select(
        "id",
        "left",
        "right",
        "outcome",
        "similarity",
        _listed("terms").alias("terms"),
        explanation.alias("why"),
        "fingerprint",
        "rejected",
    )


def _left_id(first: str | Column) -> Column:
    return result_id_column(f.lit("left"), first)


def _listed(terms: str) -> Column:
    return f.transform(
        f.map_entries(terms),
        lambda each: f.struct(each["key"].alias("measure"), each["value"].alias("similarity")),
    )


def _resolved(links: DataFrame) -> DataFrame:
    """Say which links are ``kept``: of those that share an object the most similar one.

    Equal ones follow by ids. The ``first`` object on the left is in one link of its partition, and
    in no other one.
    """
    first = f.element_at("left", 1).alias("first")
    named = links.select(first, "left", "right", "similarity", "terms")
    shared = _members(named).groupBy("side", "id").agg(f.collect_list("first").alias("firsts"))
    contested = shared.where(f.size("firsts") > 1).select(f.explode("firsts").alias("first"))
    kept = f.lit(True).alias("kept")
    clear = named.join(contested, "first", "left_anti").select("*", kept)
    sorted_ = (
        named.join(contested, "first", "left_semi")
        .select("*", kept)
        .repartition(1)  # what borders leave to decide is little
        .sortWithinPartitions(f.desc("similarity"), "left", "right")
    )
    return clear.unionByName(sorted_.mapInArrow(first_come, sorted_.schema))


def first_come(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Keep each link whose objects are in none before it."""
    taken: set[tuple[str, str]] = set()
    for batch in batches:
        kept = []
        for row in batch.select(["left", "right"]).to_pylist():
            ids = {(side, id_) for side in ("left", "right") for id_ in row[side]}
            kept.append(taken.isdisjoint(ids))
            if kept[-1]:
                taken |= ids
        at = batch.schema.get_field_index("kept")
        yield batch.set_column(at, "kept", pa.array(kept, pa.bool_()))


def _members(links: DataFrame) -> DataFrame:
    """A row for each object of a link: ``side``, ``id``, and ``first``, which names the link."""
    left, right = (
        links.select(f.lit(at).alias("side"), f.explode(side).alias("id"), "first")
        for at, side in enumerate(("left", "right"))
    )
    return left.unionByName(right)


def _of_objects(links: DataFrame) -> DataFrame:
    """For each object of a link: ``side``, ``id``, the ``link`` it is in, those ``rejected``."""
    members = _members(links.where("kept"))
    rejected = f.struct("left", "right", "similarity", _listed("terms").alias("terms"))
    lost = links.where("not kept").select(
        f.lit(0).alias("side"), f.col("first").alias("id"), rejected.alias("rejected")
    )
    doubled = f.raise_error(f.lit("an object is in two links"))
    return (
        members.unionByName(lost, allowMissingColumns=True)
        .groupBy("side", "id")
        .agg(
            f.when(f.count("first") > 1, doubled).otherwise(f.max("first")).alias("found"),
            f.sort_array(f.collect_list("rejected")).alias("rejected"),
        )
    )


def _rows(objects: DataFrame, links: DataFrame) -> DataFrame:
    """Gather objects by the link that they are in; those without one are rows by themselves."""
    first = f.coalesce(f.expr("substring(link, 6)"), "found")
    side_named = f.when(first.isNotNull() | (f.col("side") == 0), "left").otherwise("right")
    row = result_id_column(side_named, f.coalesce(first, "id"))
    named = objects.join(links, ["side", "id"], "left").withColumn("row", row)
    left, right = (
        f.sort_array(f.collect_list(f.when(f.col("side") == at, f.col("id")))).alias(side)
        for at, side in enumerate(("left", "right"))
    )
    outcome = (
        f.when(f.count("link") > 0, "must")
        .when(f.count("found") > 0, "similarity")
        .otherwise("unmatched")
    )
    return named.groupBy(f.col("row").alias("id")).agg(
        left,
        right,
        outcome.alias("outcome"),
        f.min_by("partition", f.struct("side", "id")).alias("partition"),
        f.flatten(f.sort_array(f.collect_list("rejected"))).alias("rejected"),
    )
