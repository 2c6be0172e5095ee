"""Clusters of weighted pairs, which keep their names.

The name of a cluster is that of its least record (source, then id), so the same records get the
same name in every run, whatever else joins later. Where clusters are known from an earlier run,
their names are kept: of those that are merged, the one with the most records (then the least name)
keeps its name, and the merge is reported. A new cluster gets no name that is known
(`cluster_names`).
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
from spark_jobs.linkage.open.refine import CERTAIN, Links, refined
from spark_jobs.linkage.open.spec import Clustering, OpenSpec

__all__ = ["assigned", "merges", "named"]

_TASK_PAIRS: Final = 200_000
_MOST_TASKS: Final = 4096
_MERGES_REPORTED: Final = 100


def assigned(
    scored: DataFrame, records: DataFrame, spec: OpenSpec, bits: float, links: int
) -> DataFrame:
    """Assign prepared records to clusters: ``row`` and ``root``, the least row of its cluster.

    Only records with a link are included: a pair of at least `bits`, of which there are about
    `links`.
    """
    known = _known_links(records) if spec.known else None
    pairs = scored.select("l", "r", "bits")
    pairs = pairs if known is None else pairs.unionByName(known)
    labels = connected(pairs.where(f.col("bits") >= bits).select("l", "r"), links)
    if spec.clustering is Clustering.COMPONENTS:
        return labels.withColumnRenamed("component", "root")
    return _refine(_inside(pairs, labels, records), spec.clustering, bits, links)


def _known_links(records: DataFrame) -> DataFrame:
    """Every record of a known cluster, linked with the least of it."""
    least = f.min("row").over(Window.partitionBy("known"))
    known = records.where(f.col("known").isNotNull()).select("row", least.alias("l"))
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


def _refine(inside: DataFrame, how: Clustering, least: float, links: int) -> DataFrame:
    tasks = min(_MOST_TASKS, 1 + links // _TASK_PAIRS)
    bucket = f.pmod(f.xxhash64("l_component"), f.lit(tasks)).alias("bucket")
    chosen = inside.select(bucket, "l", "r", "bits", "l_source", "r_source")
    names = ("l", "r", "bits", "l_source", "r_source")

    def refine(table: pa.Table) -> pa.Table:
        inner = Links(*(np.asarray(table.column(name)) for name in names))
        rows, roots = refined(inner, how, least)
        return pa.table({"row": rows, "root": roots})

    return chosen.groupBy("bucket").applyInArrow(refine, "row long, root long")


def named(records: DataFrame, roots: DataFrame, spec: OpenSpec) -> DataFrame:
    """Every record: ``row``, ``source`` (its name), ``cluster``, ``record``, ``known``."""
    members = records.join(roots, "row", "left").select(
        "row",
        source_name(spec),
        f.col("id").alias("record"),
        f.coalesce("root", "row").alias("root"),
        *("known", "truth"),
    )
    least = f.min(f.struct("source", "record"))
    clusters = members.groupBy("root").agg(least.alias("least"))
    cluster = f.concat("least.source", f.lit("/"), "least.record")
    if spec.known:
        clusters = _with_free_names(clusters.withColumn("own", cluster), members)
        clusters = clusters.join(_kept_names(members), "root", "left")
        cluster = f.coalesce("kept", "free")
    return members.join(clusters.select("root", cluster.alias("cluster")), "root").drop("root")


def _with_free_names(clusters: DataFrame, members: DataFrame) -> DataFrame:
    """Add ``free``: the own name of each cluster, another one where a known cluster is called so.

    The same as `TakenNames` gives.
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


def _kept_names(members: DataFrame) -> DataFrame:
    counted = (
        members.where(f.col("known").isNotNull())
        .groupBy("root", "known")
        .agg(f.count("*").alias("n"))
    )
    most = f.min(f.struct((-f.col("n")).alias("fewest"), "known"))
    return (
        counted.groupBy("root")
        .agg(most.alias("most"))
        .select("root", f.col("most")["known"].alias("kept"))
    )


def merges(clusters: DataFrame) -> Mapping[str, Any]:
    gone = clusters.where(f.col("known").isNotNull() & (f.col("known") != f.col("cluster")))
    pairs = gone.select(f.col("known").alias("from"), f.col("cluster").alias("into")).distinct()
    examples = [row.asDict() for row in pairs.orderBy("from").limit(_MERGES_REPORTED).collect()]
    return {"merged": examples, "count": pairs.count()}
