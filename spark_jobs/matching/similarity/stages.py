"""The forecast of a run, and its stages: each reads inputs and frames of earlier stages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from spark_jobs.matching.similarity.calibration import calibration_report
from spark_jobs.matching.similarity.former import former_rows, reuse_report
from spark_jobs.matching.similarity.frames import objects, records
from spark_jobs.matching.similarity.labels import effective_spec, learn
from spark_jobs.matching.similarity.partitions import (
    COPIES,
    assign_owners,
    copies,
    starts_of,
    with_copies,
)
from spark_jobs.matching.similarity.prepare import prepare_roads
from spark_jobs.matching.similarity.recompose import recompose
from spark_jobs.matching.similarity.spec import SimilaritySpec
from spark_jobs.matching.similarity.task import (
    MATCHED,
    SIDES,
    match_partition,
)
from spark_jobs.runner.port import (
    MAX_NAMED_BLOCKS,
    Block,
    Forecast,
    Frame,
    InputUnfit,
    StageContext,
)

__all__ = ["STAGES", "forecast"]

_OBJECTS_PER_S: Final = 2_000
_BYTES_PER_OBJECT: Final = 20_000
_BYTES_PER_PAIR: Final = 800
"""Memory for a candidate while its partition is matched."""
_BYTES_PER_CROSSING: Final = 2_000
"""Memory for a crossing where two lines of a source are divided, with the pieces."""
_BASE_BYTES: Final = 512 * 2**20
_TASKS_PER_PARTITION: Final = 4
"""Tasks per partition: partitions are hashed to tasks, so more tasks mean fewer shared ones."""
_MAX_UNCERTAIN: Final = 20
_COLUMNS: Final = ["partition", "side", "id", "record", "link", "cannot", "owned"]


def forecast(spec: SimilaritySpec, context: StageContext) -> Forecast:
    """Count objects and the pairs of their blocks.

    Raises:
        InputUnfit: A source is empty, a line does not fit the grid, or lists contradict each other.
    """
    # Lines are divided later, which gives more objects in the same cells.
    read = objects(spec.model_copy(update={"roads": None}), context).persist()
    try:
        rows, keyless = _sizes(read)
        crossings = 0 if spec.roads is None else min(_near_pairs(read), spec.limits.pairs)
        blocks = _blocks(read).persist()
        try:
            total = int((blocks.agg(f.sum("pairs")).first() or (0,))[0] or 0)
            heavy = blocks.orderBy(f.desc("pairs"), "key").take(MAX_NAMED_BLOCKS)
        finally:
            blocks.unpersist()
    finally:
        read.unpersist()
    heaviest = [Block(*row) for row in heavy]
    count = sum(rows.values())
    return Forecast(
        rows,
        pairs=total,
        heaviest=tuple(heaviest),
        memory_bytes=_memory(spec, count, total) + _BYTES_PER_CROSSING * crossings,
        time_s=count / _OBJECTS_PER_S,
        notes=tuple(_notes(spec, total, heaviest, keyless)),
    )


def _memory(spec: SimilaritySpec, objects: int, pairs: int) -> int:
    """Return the memory of one task: a partition with its copies; one task prepares all lines."""
    matched = min(objects, 2 * spec.partition)
    read = objects if spec.roads is not None else matched
    candidates = pairs * matched // objects
    return _BASE_BYTES + _BYTES_PER_OBJECT * read + _BYTES_PER_PAIR * candidates


def _sizes(read: DataFrame) -> tuple[dict[str, int], int]:
    """Count the objects of each side, and those without a key.

    Raises:
        InputUnfit: A source has no objects.
    """
    keyless = f.sum(f.col("unreadable").cast("int")).alias("apart")
    counts = read.groupBy("side").agg(f.count("*").alias("rows"), keyless).collect()
    rows = {SIDES[row["side"]]: row["rows"] for row in counts}
    for side in SIDES:
        if side not in rows:
            raise InputUnfit(f"{side} has no objects.")
    return {side: rows[side] for side in SIDES}, sum(row["apart"] for row in counts)


def _near_pairs(read: DataFrame) -> int:
    """Count pairs of lines of one source that share a cell: an estimate of crossings."""
    keys = read.select("side", f.explode("keys").alias("key")).groupBy("side", "key").count()
    pairs = f.sum(f.col("count") * (f.col("count") - 1) / 2).alias("pairs")
    counts = keys.groupBy("side").agg(pairs).agg(f.max("pairs")).first()
    return int((counts or (0,))[0] or 0)


def _blocks(read: DataFrame) -> DataFrame:
    """Return the keys of both sources: ``key``, ``records``, ``pairs``."""
    keys = read.select("side", f.explode("keys").alias("key"))
    right = f.sum("side").alias("right")
    counts = keys.groupBy("key").agg(f.count("*").alias("records"), right)
    pairs = ((f.col("records") - f.col("right")) * f.col("right")).alias("pairs")
    return counts.select("key", "records", pairs)


def _notes(spec: SimilaritySpec, pairs: int, heaviest: list[Block], keyless: int) -> Iterator[str]:
    if pairs > spec.limits.pairs:
        yield f"There are {pairs:,} pairs, and limits.pairs is {spec.limits.pairs:,}: it will stop."
    if heaviest and heaviest[0].pairs > spec.limits.block_pairs:
        yield f"The block {heaviest[0].name} has {heaviest[0].pairs:,} pairs: it will stop."
    if keyless:
        yield f"{keyless:,} objects have no key or no line: they will be unmatched."
    if spec.roads is not None:
        yield "Lines are divided where they meet, so more objects will be matched."


def _roads(spec: SimilaritySpec, context: StageContext) -> DataFrame:
    return prepare_roads(records(spec, context), spec)


def _objects(spec: SimilaritySpec, context: StageContext) -> DataFrame:
    return objects(spec, context)


def _borders(spec: SimilaritySpec, context: StageContext) -> DataFrame:
    read = context.output("objects")
    _check_blocks(spec, read)
    starts = starts_of(read, spec)
    if len(starts) == 1:  # there is no border
        return context.spark.createDataFrame([], COPIES)
    return copies(assign_owners(read, starts), spec.border)


def _partitions(spec: SimilaritySpec, context: StageContext) -> DataFrame:
    read = context.output("objects")
    owned_objects = assign_owners(read, starts_of(read, spec))
    placed = with_copies(owned_objects, context.output("borders"), spec).select(*_COLUMNS)
    if spec.former is None:
        return placed
    former = former_rows(context, placed.where("owned"))
    return placed.unionByName(former, allowMissingColumns=True)


def _check_blocks(spec: SimilaritySpec, read: DataFrame) -> None:
    """Check the limits of pairs.

    Raises:
        InputUnfit: One block, or all blocks, have too many pairs.
    """
    largest = f.max(f.struct("pairs", "key")).alias("largest")
    row = _blocks(read).agg(largest, f.sum("pairs").alias("total")).first()
    if row is None or row["largest"] is None:
        return
    pairs, key = row["largest"]
    if pairs > spec.limits.block_pairs:
        raise InputUnfit(
            f"The block {key} has {pairs:,} pairs; "
            f"limits.block_pairs is {spec.limits.block_pairs:,}."
        )
    if row["total"] > spec.limits.pairs:
        raise InputUnfit(
            f"There are {row['total']:,} pairs; limits.pairs is {spec.limits.pairs:,}."
        )


def _match(spec: SimilaritySpec, context: StageContext) -> DataFrame:
    placed = context.output("partitions")
    tasks = _TASKS_PER_PARTITION * placed.select("partition").distinct().count()
    by_partition = placed.repartition(max(1, tasks), "partition").groupBy("partition")
    effective = effective_spec(spec, context)

    def match_rows(partition: pa.Table) -> pa.Table:
        return pa.Table.from_pylist([*match_partition(partition.to_pylist(), effective)], MATCHED)

    return by_partition.applyInArrow(match_rows, from_arrow_schema(MATCHED))


def _report(spec: SimilaritySpec, context: StageContext) -> None:
    """Report counts, the contributions of measures, and the pairs to label next."""
    matched, effective = context.output("match"), effective_spec(spec, context)
    counts = matched.where(f.col("kind").isin("candidates", "aggregations"))
    for row in counts.groupBy("kind").agg(f.sum("count").alias("total")).collect():
        context.count(row["kind"], row["total"])
    context.report("calibration", _calibration(matched, effective))
    context.report("uncertain", {"pairs": _uncertain(matched, effective)})
    if spec.former is not None:
        context.report("former", reuse_report(matched))


def _calibration(matched: DataFrame, spec: SimilaritySpec) -> Mapping[str, Any]:
    """Report the contribution of each measure in a sample of candidates; empty: too few."""
    labels = [measure.label for measure in spec.measures]
    columns = [f.col("terms")[label].alias(str(at)) for at, label in enumerate(labels)]
    sample = (
        matched.where("kind = 'sample'").select(*columns).orderBy(*map(str, range(len(labels))))
    )
    terms = np.array([tuple(row) for row in sample.collect()], dtype=np.float64)
    if len(terms) < 2:  # noqa: PLR2004 - two values have an order
        return {}
    return calibration_report(labels, terms, [measure.weight for measure in spec.measures])


def _uncertain(matched: DataFrame, spec: SimilaritySpec) -> list[Mapping[str, Any]]:
    """Return the candidates nearest to the threshold, whose labels are the most informative."""
    candidates = matched.where("kind = 'uncertain'")
    distance = f.abs(f.col("similarity") - spec.threshold * (1 - spec.relational))
    rows = candidates.orderBy(f.round(distance, 9), "left", "right").limit(_MAX_UNCERTAIN).collect()
    return [
        {
            "left": row["left"][0],
            "right": row["right"][0],
            "similarity": row["similarity"],
            "terms": row["terms"],
        }
        for row in rows
    ]


def _result(spec: SimilaritySpec, context: StageContext) -> DataFrame:
    return recompose(context, _explanation(effective_spec(spec, context)))


def _explanation(spec: SimilaritySpec) -> Column:
    """Return the reason for a row as text."""
    terms = f.transform(
        f.map_entries("terms"),
        lambda item: f.format_string("%s %.2f", item["key"], item["value"]),
    )
    many = f.when(
        (f.size("left") > 1) | (f.size("right") > 1),
        f.format_string("%d objects are one with %d: ", f.size("left"), f.size("right")),
    ).otherwise("")
    above = f.format_string(
        f"similarity %.3f is above {spec.threshold:g}: %s.", "similarity", f.array_join(terms, ", ")
    )
    similarity_text = f.concat(many, above)
    return (
        f.when(f.col("outcome") == "must", "It was decided by a person.")
        .when(f.size("rejected") > 0, "What it is similar to is in a link that is more similar.")
        .when(f.col("outcome") == "unmatched", "No candidate is similar enough and free.")
        .otherwise(similarity_text)
    )


STAGES: Final[Mapping[str, Callable[[SimilaritySpec, StageContext], Frame | None]]] = {
    "roads": _roads,
    "objects": _objects,
    "learn": learn,
    "borders": _borders,
    "partitions": _partitions,
    "match": _match,
    "report": _report,
    "result": _result,
}
