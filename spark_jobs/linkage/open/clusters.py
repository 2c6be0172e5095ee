"""Clusters of weighted pairs, with stable names.

A cluster is named after its least record (source, then id), so the same records get the same name
in every run, whatever joins later. Clusters known from an earlier run keep their names: a merged
cluster keeps the name of the one with the most records (then the least name), and the merge is
reported. A new cluster never gets a known name (`cluster_names`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from spark_jobs.linkage.open.cluster_names import NUMBERED
from spark_jobs.linkage.open.forest import connected
from spark_jobs.linkage.open.prepare import source_name
from spark_jobs.linkage.open.refine import CERTAIN, Links, refine_components
from spark_jobs.linkage.open.spec import Clustering, OpenSpec

__all__ = ["assign_clusters", "merges", "name_clusters"]

_TASK_PAIRS: Final = 200_000
_MAX_TASKS: Final = 4096
_MERGES_REPORTED: Final = 100


def assign_clusters(
    scored: DataFrame, records: DataFrame, spec: OpenSpec, min_bits: float, links: int
) -> DataFrame:
    """Assign prepared records to clusters: ``row`` and ``root``, the least row of its cluster.

    Only records with a link are included: a pair of at least `min_bits`; `links` is about their
    number.
    """
    known = _known_links(records) if spec.known else None
    pairs = scored.select("l", "r", "bits")
    pairs = pairs if known is None else pairs.unionByName(known)
    labels = connected(pairs.where(f.col("bits") >= min_bits).select("l", "r"), links)
    if spec.clustering is Clustering.COMPONENTS:
        return labels.withColumnRenamed("component", "root")
    return _refine(_inside(pairs, labels, records), spec.clustering, min_bits, links)


def _known_links(records: DataFrame) -> DataFrame:
    """Return a link of every record of a known cluster with the cluster's least record."""
    least_row = f.min("row").over(Window.partitionBy("known"))
    known = records.where(f.col("known").isNotNull()).select("row", least_row.alias("l"))
    pairs = known.where(f.col("row") != f.col("l"))
    return pairs.select("l", f.col("row").alias("r"), f.lit(CERTAIN).alias("bits"))


def _inside(pairs: DataFrame, labels: DataFrame, records: DataFrame) -> DataFrame:
    sources = labels.join(records.select("row", "source"), "row")

    def end(name: str) -> DataFrame:
        return sources.select(
            f.col("row").alias(name),
            f.col("component").alias(f"{name}_component"),
            f.col("source").alias(f"{name}_source"),
        )

    joined = pairs.join(end("l"), "l").join(end("r"), "r")
    return joined.where(f.col("l_component") == f.col("r_component"))


def _refine(inside: DataFrame, method: Clustering, min_bits: float, links: int) -> DataFrame:
    tasks = min(_MAX_TASKS, 1 + links // _TASK_PAIRS)
    bucket = f.pmod(f.xxhash64("l_component"), f.lit(tasks)).alias("bucket")
    bucketed = inside.select(bucket, "l", "r", "bits", "l_source", "r_source")
    names = ("l", "r", "bits", "l_source", "r_source")

    def refine(table: pa.Table) -> pa.Table:
        inner = Links(*(np.asarray(table.column(name)) for name in names))
        rows, roots = refine_components(inner, method, min_bits)
        return pa.table({"row": rows, "root": roots})

    return bucketed.groupBy("bucket").applyInArrow(refine, "row long, root long")


def name_clusters(records: DataFrame, roots: DataFrame, spec: OpenSpec) -> DataFrame:
    """Return every record: ``row``, ``source`` (its name), ``cluster``, ``record``, ``known``."""
    members = records.join(roots, "row", "left").select(
        "row",
        source_name(spec),
        f.col("id").alias("record"),
        f.coalesce("root", "row").alias("root"),
        *("known", "truth"),
    )
    least_record = f.min(f.struct("source", "record"))
    clusters = members.groupBy("root").agg(least_record.alias("least"))
    cluster = f.concat("least.source", f.lit("/"), "least.record")
    if spec.known:
        clusters = _with_free_names(clusters.withColumn("own", cluster), members)
        clusters = clusters.join(_known_names(members), "root", "left")
        cluster = f.coalesce("kept", "free")
    return members.join(clusters.select("root", cluster.alias("cluster")), "root").drop("root")


def _with_free_names(clusters: DataFrame, members: DataFrame) -> DataFrame:
    """Add ``free``: the cluster's own name, numbered if a known cluster has it.

    `TakenNames` gives the same names.
    """
    known = members.where(f.col("known").isNotNull()).select("known").distinct()
    number = f.regexp_extract("known", NUMBERED, 2).try_cast("int")
    taken = known.groupBy(f.regexp_replace("known", NUMBERED, "$1/").alias("own")).agg(
        f.collect_set(f.coalesce(number, f.lit(1))).alias("taken")
    )
    numbers = f.sequence(f.lit(1), f.size("taken") + 1)
    first = f.coalesce(f.array_min(f.array_except(numbers, "taken")), f.lit(1))
    other = f.concat("least.source", f.lit("~"), first.cast("string"), f.lit("/"), "least.record")
    free = f.when(first == 1, f.col("own")).otherwise(other)
    return clusters.join(taken, "own", "left").select("*", free.alias("free"))


def _known_names(members: DataFrame) -> DataFrame:
    counts = (
        members.where(f.col("known").isNotNull())
        .groupBy("root", "known")
        .agg(f.count("*").alias("n"))
    )
    largest = f.min(f.struct((-f.col("n")).alias("fewest"), "known"))
    return (
        counts.groupBy("root")
        .agg(largest.alias("most"))
        .select("root", f.col("most")["known"].alias("kept"))
    )


def merges(clusters: DataFrame) -> Mapping[str, Any]:
    renamed = clusters.where(f.col("known").isNotNull() & (f.col("known") != f.col("cluster")))
    pairs = renamed.select(f.col("known").alias("from"), f.col("cluster").alias("into")).distinct()
    examples = [row.asDict() for row in pairs.orderBy("from").limit(_MERGES_REPORTED).collect()]
    return {"merged": examples, "count": pairs.count()}
