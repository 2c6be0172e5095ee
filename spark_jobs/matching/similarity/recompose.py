"""Recomposes the links of partitions: each object is in one row of the result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_jobs.result_ids import result_id_column
from spark_jobs.runner.port import StageContext

__all__ = ["first_come", "recompose"]


def recompose(context: StageContext, explanation: Column) -> DataFrame:
    """Return the result: links, and a row for each object without a link.

    Rows are built from objects, which occur once each; an object in two links fails the task.
    """
    matched = context.output("match")
    links = _resolve(matched.where("kind = 'link'"))
    kept_links = links.where("kept").select(_left_id("first"), "similarity", "terms")
    rows = _rows(context.output("partitions").where("owned"), _links_by_object(links))
    fingerprints = matched.where("kind = 'partition'").select("partition", "fingerprint")
    joined = rows.join(kept_links, "id", "left").join(
        f.broadcast(fingerprints), "partition", "left"
    )
    return joined.select(
        "id",
        "left",
        "right",
        "outcome",
        "similarity",
        _term_list("terms").alias("terms"),
        explanation.alias("why"),
        "fingerprint",
        "rejected",
    )


def _left_id(first: str | Column) -> Column:
    return result_id_column(f.lit("left"), first)


def _term_list(terms: str) -> Column:
    return f.transform(
        f.map_entries(terms),
        lambda item: f.struct(item["key"].alias("measure"), item["value"].alias("similarity")),
    )


def _resolve(links: DataFrame) -> DataFrame:
    """Mark the links that are ``kept``: of links that share an object, the most similar.

    Ties are broken by ids. The ``first`` object on the left is in only one link of its partition.
    """
    first = f.element_at("left", 1).alias("first")
    with_first = links.select(first, "left", "right", "similarity", "terms")
    shared = _members(with_first).groupBy("side", "id").agg(f.collect_list("first").alias("firsts"))
    contested = shared.where(f.size("firsts") > 1).select(f.explode("firsts").alias("first"))
    is_kept = f.lit(True).alias("kept")
    uncontested = with_first.join(contested, "first", "left_anti").select("*", is_kept)
    sorted_ = (
        with_first.join(contested, "first", "left_semi")
        .select("*", is_kept)
        .repartition(1)  # borders leave few links to resolve
        .sortWithinPartitions(f.desc("similarity"), "left", "right")
    )
    return uncontested.unionByName(sorted_.mapInArrow(first_come, sorted_.schema))


def first_come(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Keep each link whose objects are not in an earlier link."""
    used: set[tuple[str, str]] = set()
    for batch in batches:
        keep_flags = []
        for row in batch.select(["left", "right"]).to_pylist():
            ids = {(side, id_) for side in ("left", "right") for id_ in row[side]}
            keep_flags.append(used.isdisjoint(ids))
            if keep_flags[-1]:
                used |= ids
        at = batch.schema.get_field_index("kept")
        yield batch.set_column(at, "kept", pa.array(keep_flags, pa.bool_()))


def _members(links: DataFrame) -> DataFrame:
    """Return a row per object of a link: ``side``, ``id``, and ``first``, which names the link."""
    left, right = (
        links.select(f.lit(at).alias("side"), f.explode(side).alias("id"), "first")
        for at, side in enumerate(("left", "right"))
    )
    return left.unionByName(right)


def _links_by_object(links: DataFrame) -> DataFrame:
    """Return for each object of a link: ``side``, ``id``, the ``found`` link, and ``rejected``."""
    members = _members(links.where("kept"))
    rejected_struct = f.struct("left", "right", "similarity", _term_list("terms").alias("terms"))
    rejected_links = links.where("not kept").select(
        f.lit(0).alias("side"), f.col("first").alias("id"), rejected_struct.alias("rejected")
    )
    duplicate_error = f.raise_error(f.lit("an object is in two links"))
    return (
        members.unionByName(rejected_links, allowMissingColumns=True)
        .groupBy("side", "id")
        .agg(
            f.when(f.count("first") > 1, duplicate_error).otherwise(f.max("first")).alias("found"),
            f.sort_array(f.collect_list("rejected")).alias("rejected"),
        )
    )


def _rows(objects: DataFrame, links: DataFrame) -> DataFrame:
    """Group objects by their link; an object without a link is a separate row."""
    first = f.coalesce(f.expr("substring(link, 6)"), "found")
    side_name = f.when(first.isNotNull() | (f.col("side") == 0), "left").otherwise("right")
    row = result_id_column(side_name, f.coalesce(first, "id"))
    with_row = objects.join(links, ["side", "id"], "left").withColumn("row", row)
    left, right = (
        f.sort_array(f.collect_list(f.when(f.col("side") == at, f.col("id")))).alias(side)
        for at, side in enumerate(("left", "right"))
    )
    outcome = (
        f.when(f.count("link") > 0, "must")
        .when(f.count("found") > 0, "similarity")
        .otherwise("unmatched")
    )
    return with_row.groupBy(f.col("row").alias("id")).agg(
        left,
        right,
        outcome.alias("outcome"),
        f.min_by("partition", f.struct("side", "id")).alias("partition"),
        f.flatten(f.sort_array(f.collect_list("rejected"))).alias("rejected"),
    )
