"""The former result whose links are taken over where nothing has changed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from spark_jobs.columns import quoted
from spark_jobs.matching.similarity.fingerprints import REASONS, FormerRow, GivenLink
from spark_jobs.matching.similarity.task import FORMER, RECORDS
from spark_jobs.runner.port import StageContext

__all__ = ["former_rows", "parsed_row", "reused"]

_LONGEST: Final = 256
"""Characters of a fingerprint."""


def former_rows(context: StageContext, owned: DataFrame) -> DataFrame:
    """Read the former result: ``partition``, of its first object, ``id`` and ``record``.

    `owned` are the objects with the partitions that own them.
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
        rows = [found for text in batch.column("row").to_pylist() for found in parsed_row(text)]
        yield pa.RecordBatch.from_pylist(rows, schema=RECORDS)


def parsed_row(text: str) -> Iterator[dict[str, Any]]:
    """Read a row, and the links that it keeps besides; what is no row of a result is left out."""
    try:
        row = json.loads(text)
        ends = _array(row.get("left")), _array(row.get("right"))
        fingerprint = str(row["fingerprint"])[:_LONGEST]
        link = _link(row) if row["outcome"] == "similarity" else None
        others = [_link(other) for other in _array(row.get("rejected"))]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return
    side = 0 if ends[0] else 1
    if ends[side]:
        yield _placed(side, ends[side][0], FormerRow(fingerprint, link))
    for other in others:
        if other.left:
            yield _placed(0, other.left[0], FormerRow(None, other))


def _placed(side: int, id_: Any, row: FormerRow) -> dict[str, Any]:
    return {"side": side, "id": str(id_), "record": row.to_json()}


def _link(row: Mapping[str, Any]) -> GivenLink:
    terms = {str(term["measure"]): float(term["similarity"]) for term in _array(row["terms"])}
    left, right = (tuple(map(str, _array(row[side]))) for side in ("left", "right"))
    return GivenLink(left, right, float(row["similarity"]), terms)


def _array(value: Any) -> Sequence[Any]:
    """Return an array; a class and CSV give one as text."""
    if isinstance(value, str):
        value = json.loads(value)
    if value is None:
        return []
    if not isinstance(value, list):
        raise TypeError("an array is expected")
    return value


def reused(matched: DataFrame) -> Mapping[str, Any]:
    """Report how many objects were matched anew, for which reasons, and how many were not."""
    rows = matched.where("kind = 'partition'").groupBy("reason").agg(f.sum("count").alias("n"))
    counts = {row["reason"]: row["n"] for row in rows.collect()}
    kept = counts.pop(None, 0)
    reasons = {reason: counts[reason] for reason in REASONS if reason in counts}
    return {"matched": sum(reasons.values()), "reused": kept, "reasons": reasons}
