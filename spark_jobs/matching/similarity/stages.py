"""The forecast of a run, and its stages: each follows from inputs and what earlier ones kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_jobs.matching.similarity.engine import Link, Matching, match
from spark_jobs.matching.similarity.frames import SIDES, objects
from spark_jobs.matching.similarity.labels import effective, learn
from spark_jobs.matching.similarity.objects import MatchObject, Reader
from spark_jobs.matching.similarity.partitions import partitioned
from spark_jobs.matching.similarity.recompose import recomposed
from spark_jobs.matching.similarity.reports import calibration, uncertain
from spark_jobs.matching.similarity.spec import SimilaritySpec
from spark_jobs.runner.port import Block, Forecast, InputUnfit, StageContext

__all__ = ["STAGES", "forecast"]

_OBJECTS_PER_S: Final = 2_000
_BYTES_PER_OBJECT: Final = 20_000
_BASE_BYTES: Final = 512 * 2**20
_HEAVIEST: Final = 10
_COLUMNS: Final = ["side", "id", "record", "link", "cannot", "owned"]
_MATCHED: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("left", pa.list_(pa.string())),
        ("right", pa.list_(pa.string())),
        ("similarity", pa.float64()),
        ("terms", pa.map_(pa.string(), pa.float64())),
        ("count", pa.int64()),
    ]
)
_MATCHED_DDL: Final = (
    "kind string, left array<string>, right array<string>, similarity double,"
    " terms map<string,double>, count long"
)


def forecast(spec: SimilaritySpec, context: StageContext) -> Forecast:
    """Count objects and the pairs of their blocks.

    Raises:
        InputUnfit: A source is empty, a line does not fit the grid, or lists contradict each other.
    """
    read = objects(spec, context).persist()
    try:
        rows: dict[str, int] = {
            side: read.where(f.col("side") == at).count() for at, side in enumerate(SIDES)
        }
        for side, count in rows.items():
            if not count:
                raise InputUnfit(f"{side} has no objects.")
        blocks = _blocks(read)
        total = int((blocks.agg(f.sum("pairs")).first() or (0,))[0] or 0)
        heaviest = [Block(*row) for row in blocks.orderBy(f.desc("pairs"), "key").take(_HEAVIEST)]
        apart = read.where("unreadable").count()
    finally:
        read.unpersist()
    count = sum(rows.values())
    return Forecast(
        rows,
        pairs=total,
        heaviest=tuple(heaviest),
        memory_bytes=_BASE_BYTES + _BYTES_PER_OBJECT * min(count, 2 * spec.partition),
        time_s=count / _OBJECTS_PER_S,
        notes=tuple(_notes(spec, total, heaviest, apart)),
    )


def _blocks(read: DataFrame) -> DataFrame:
    """Keys of both sources: ``key``, ``records``, ``pairs``."""
    each = read.select("side", f.explode("keys").alias("key"))
    right = f.sum("side").alias("right")
    counted = each.groupBy("key").agg(f.count("*").alias("records"), right)
    pairs = ((f.col("records") - f.col("right")) * f.col("right")).alias("pairs")
    return counted.select("key", "records", pairs)


def _notes(spec: SimilaritySpec, pairs: int, heaviest: list[Block], apart: int) -> Iterator[str]:
    if pairs > spec.limits.pairs:
        yield f"There are {pairs:,} pairs, and limits.pairs is {spec.limits.pairs:,}: it will stop."
    if heaviest and heaviest[0].pairs > spec.limits.block_pairs:
        yield f"The block {heaviest[0].name} has {heaviest[0].pairs:,} pairs: it will stop."
    if apart:
        yield f"{apart:,} objects have no key or no line: they will be unmatched."


def _objects(spec: SimilaritySpec, context: StageContext) -> DataFrame:
    return objects(spec, context)


def _partitions(spec: SimilaritySpec, context: StageContext) -> DataFrame:
    read = context.output("objects")
    _check_blocks(spec, read)
    placed = partitioned(read, spec)
    return placed.join(read, ["side", "id"])


def _check_blocks(spec: SimilaritySpec, read: DataFrame) -> None:
    """Refuse what would cost more than the limits.

    Raises:
        InputUnfit: The blocks have too many pairs, one of them or all.
    """
    blocks = _blocks(read)
    if (largest := blocks.orderBy(f.desc("pairs"), "key").first()) is None:
        return
    if largest["pairs"] > spec.limits.block_pairs:
        raise InputUnfit(
            f"The block {largest['key']} has {largest['pairs']:,} pairs; "
            f"limits.block_pairs is {spec.limits.block_pairs:,}."
        )
    total = (blocks.agg(f.sum("pairs")).first() or (0,))[0]
    if total > spec.limits.pairs:
        raise InputUnfit(f"There are {total:,} pairs; limits.pairs is {spec.limits.pairs:,}.")


def _match(spec: SimilaritySpec, context: StageContext) -> DataFrame:
    placed = context.output("partitions")
    tasks = 1 + int((placed.agg(f.max("partition")).first() or (0,))[0] or 0)
    spread = placed.repartition(tasks, "partition").groupBy("partition")
    used = effective(spec, context)

    def matched(partition: pa.Table) -> pa.Table:
        return _matched(partition, used)

    return spread.applyInArrow(matched, _MATCHED_DDL)


def _matched(partition: pa.Table, spec: SimilaritySpec) -> pa.Table:
    """Match the objects of a partition; a link that another one owns is not given here."""
    sides: tuple[list[MatchObject], list[MatchObject]] = [], []
    readers = [Reader(spec, side) for side in SIDES]
    owned: set[str] = set()
    for row in partition.select(_COLUMNS).to_pylist():
        side, record = row["side"], json.loads(row["record"])
        sides[side].append(readers[side].read(record, row["link"], row["cannot"] or ()))
        if row["owned"] and not side:
            owned.add(row["id"])
    return pa.Table.from_pylist([*_rows(match(*sides, spec), owned, spec)], schema=_MATCHED)


def _rows(matching: Matching, owned: set[str], spec: SimilaritySpec) -> Iterator[dict[str, Any]]:
    for link in matching.links:
        if not link.decided and link.left[0] in owned:
            yield _link_row(link)
    for pair in matching.uncertain:
        if pair.left in owned:
            terms = {"kind": "uncertain", "left": [pair.left], "right": [pair.right]}
            yield {**terms, "similarity": pair.similarity, "terms": [*pair.terms.items()]}
    labels = [measure.label for measure in spec.measures]
    for terms_ in matching.sample:
        yield {"kind": "sample", "terms": [*zip(labels, terms_, strict=True)]}
    yield {"kind": "candidates", "count": matching.candidates}
    yield {"kind": "aggregations", "count": matching.aggregations}


def _link_row(link: Link) -> dict[str, Any]:
    ids = {"left": [*link.left], "right": [*link.right]}
    return {"kind": "link", **ids, "similarity": link.similarity, "terms": [*link.terms.items()]}


def _report(spec: SimilaritySpec, context: StageContext) -> None:
    """Report what was compared, how measures share in it, and which pairs to label next."""
    matched, used = context.output("match"), effective(spec, context)
    for row in matched.groupBy("kind").agg(f.sum("count").alias("total")).collect():
        if row["total"] is not None:
            context.count(row["kind"], row["total"])
    context.report("calibration", calibration(matched, used))
    context.report("uncertain", {"pairs": uncertain(matched, used)})


def _result(spec: SimilaritySpec, context: StageContext) -> DataFrame:
    used = effective(spec, context)
    settings = used.model_dump_json(exclude=_APART)
    return recomposed(context, _explanation(used), settings)


def _explanation(spec: SimilaritySpec) -> Column:
    """Say in words why objects are linked."""
    terms = f.transform(
        f.map_entries("terms"),
        lambda each: f.format_string("%s %.2f", each["key"], each["value"]),
    )
    many = f.when(
        (f.size("left") > 1) | (f.size("right") > 1),
        f.format_string("%d objects are one with %d: ", f.size("left"), f.size("right")),
    ).otherwise("")
    above = f.format_string(
        f"similarity %.3f is above {spec.threshold:g}: %s.", "similarity", f.array_join(terms, ", ")
    )
    found = f.concat(many, above)
    return (
        f.when(f.col("outcome") == "must", "It was decided by a person.")
        .when(f.col("outcome") == "unmatched", "No candidate is similar enough and free.")
        .otherwise(found)
    )


_APART: Final = {"left", "right", "must", "cannot", "lists", "learning", "partition", "limits"}
"""Members that a fingerprint has by what they say of its objects, or that change no link."""

STAGES: Final[Mapping[str, Callable[[SimilaritySpec, StageContext], DataFrame | None]]] = {
    "objects": _objects,
    "learn": learn,
    "partitions": _partitions,
    "match": _match,
    "report": _report,
    "result": _result,
}
