"""Reads a former result, whose links are reused for unchanged partitions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from spark_jobs.columns import quoted
from spark_jobs.matching.similarity.fingerprints import REASONS, FormerRow, PartitionLink
from spark_jobs.matching.similarity.task import FORMER, RECORDS
from spark_jobs.runner.port import StageContext

__all__ = ["former_rows", "parse_row", "reuse_report"]

_MAX_CHARACTERS: Final = 256
"""Maximum characters of a fingerprint."""


def former_rows(context: StageContext, owned: DataFrame) -> DataFrame:
    """Read the former result: ``partition`` (of its first object), ``id`` and ``record``.

    `owned` has the objects with the partitions that own them.
    """
    result = context.input("former")
    rows = result.select(f.to_json(f.struct(*map(quoted, result.columns))).alias("row"))
    read = rows.mapInArrow(_read, from_arrow_schema(RECORDS))
    owners = owned.select("partition", "side", "id")
    return read.join(owners, ["side", "id"]).select(
        "partition", f.lit(FORMER).alias("side"), "id", "record"
    )


def _read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = [row for text in batch.column("row").to_pylist() for row in parse_row(text)]
        yield pa.RecordBatch.from_pylist(rows, schema=RECORDS)


def parse_row(text: str) -> Iterator[dict[str, Any]]:
    """Read a row and its rejected links; skip rows that are not of a result."""
    try:
        row = json.loads(text)
        ends = _array(row.get("left")), _array(row.get("right"))
        fingerprint = str(row["fingerprint"])[:_MAX_CHARACTERS]
        link = _link(row) if row["outcome"] == "similarity" else None
        rejected = [_link(other) for other in _array(row.get("rejected"))]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return
    side = 0 if ends[0] else 1
    if ends[side]:
        yield _row(side, ends[side][0], FormerRow(fingerprint, link))
    for other in rejected:
        if other.left:
            yield _row(0, other.left[0], FormerRow(None, other))


def _row(side: int, id_: Any, row: FormerRow) -> dict[str, Any]:
    return {"side": side, "id": str(id_), "record": row.to_json()}


def _link(row: Mapping[str, Any]) -> PartitionLink:
    terms = {str(term["measure"]): float(term["similarity"]) for term in _array(row["terms"])}
    left, right = (tuple(map(str, _array(row[side]))) for side in ("left", "right"))
    return PartitionLink(left, right, float(row["similarity"]), terms)


def _array(value: Any) -> Sequence[Any]:
    """Return an array; classes and CSV store one as text."""
    if isinstance(value, str):
        value = json.loads(value)
    if value is None:
        return []
    if not isinstance(value, list):
        raise TypeError("an array is expected")
    return value


def reuse_report(matched: DataFrame) -> Mapping[str, Any]:
    """Report how many objects were matched again, by reason, and how many were not."""
    rows = matched.where("kind = 'partition'").groupBy("reason").agg(f.sum("count").alias("n"))
    counts = {row["reason"]: row["n"] for row in rows.collect()}
    reused_count = counts.pop(None, 0)
    reasons = {reason: counts[reason] for reason in REASONS if reason in counts}
    return {"matched": sum(reasons.values()), "reused": reused_count, "reasons": reasons}
