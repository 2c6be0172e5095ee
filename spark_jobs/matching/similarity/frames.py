"""Objects of both sources as one frame.

``side`` (0 is left), ``id``, ``number`` (a hash of both), ``record`` (its fields as JSON),
``keys``, ``joints`` (hashes), ``position`` (near objects have near numbers), ``unreadable`` (it has
no key), ``link`` and ``cannot`` (the users' decisions).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from math import floor
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from spark_jobs.columns import quoted
from spark_jobs.matching.similarity.lists import Decisions, decisions
from spark_jobs.matching.similarity.objects import MatchObject, Reader
from spark_jobs.matching.similarity.spec import SimilaritySpec
from spark_jobs.matching.similarity.task import RECORDS, SIDES
from spark_jobs.runner.port import InputUnfit, StageContext

__all__ = ["objects", "records"]

_MAX_LISTED: Final = 100_000
_SPREAD_STEPS: Final = (
    (16, 0x0000FFFF0000FFFF),
    (8, 0x00FF00FF00FF00FF),
    (4, 0x0F0F0F0F0F0F0F0F),
    (2, 0x3333333333333333),
    (1, 0x5555555555555555),
)
_SCHEMA: Final = pa.schema(
    [
        *RECORDS,
        ("keys", pa.list_(pa.string())),
        ("joints", pa.list_(pa.string())),
        ("position", pa.int64()),
        ("unreadable", pa.bool_()),
    ]
)


def objects(spec: SimilaritySpec, context: StageContext) -> DataFrame:
    """Read the objects of both sources.

    Raises:
        InputUnfit: A line does not fit the grid, or the lists contradict each other.
    """
    source = records(spec, context) if spec.roads is None else context.output("roads")
    read = source.mapInArrow(_ObjectReader(spec), from_arrow_schema(_SCHEMA))
    return _with_decisions(_hash(read), spec, context)


def records(spec: SimilaritySpec, context: StageContext) -> DataFrame:
    """Return the records of both sides: ``side``, ``id``, ``record``."""
    left, right = (_records(spec, context, number) for number in range(2))
    return left.unionByName(right)


def _records(spec: SimilaritySpec, context: StageContext, number: int) -> DataFrame:
    fields = [quoted(name) for name in ("id", *spec.fields(SIDES[number]))]
    return context.input(SIDES[number]).select(
        f.lit(number).alias("side"), "id", f.to_json(f.struct(*fields)).alias("record")
    )


@dataclass(frozen=True, slots=True)
class _ObjectReader:
    """Reads keys, joints and positions in Spark's tasks."""

    spec: SimilaritySpec

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        readers = [Reader(self.spec, side) for side in SIDES]
        for batch in batches:
            rows = [self._row(readers, row) for row in batch.to_pylist()]
            yield pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)

    def _row(self, readers: list[Reader], row: dict[str, Any]) -> dict[str, Any]:
        read = readers[row["side"]].read(json.loads(row["record"]))
        return {
            **row,
            "keys": sorted(read.keys),
            "joints": sorted(read.joints),
            "position": _position(read, self.spec),
            "unreadable": not read.keys,
        }


def _position(read: MatchObject, spec: SimilaritySpec) -> int:
    """Return a number for an object; near objects have near or equal numbers."""
    if read.line is not None and spec.buffer is not None:
        x, y = (floor(axis / spec.buffer) for axis in read.line.middle)
        return _morton(x & 0x7FFFFFFF, y & 0x7FFFFFFF)
    key = min(read.keys, default="")
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest()) >> 2


def _morton(x: int, y: int) -> int:
    """Interleave 31 bits of two numbers, for a Z-order curve."""
    return _spread(x) | _spread(y) << 1


def _spread(bits: int) -> int:
    """Insert a zero before each bit, by moving apart halves, quarters and so on."""
    for shift, mask in _SPREAD_STEPS:
        bits = (bits | bits << shift) & mask
    return bits


def _hash(read: DataFrame) -> DataFrame:
    """Number the objects, and replace joints by hashes that include the side."""
    joints = f.transform("joints", lambda joint: f.xxhash64("side", joint))
    return read.withColumns({"number": f.xxhash64("side", "id"), "joints": joints})


def _with_decisions(read: DataFrame, spec: SimilaritySpec, context: StageContext) -> DataFrame:
    must, cannot = _decided_pairs(spec, context)
    names = {(0, pair[0]) for pair in must + cannot} | {(1, pair[1]) for pair in must + cannot}
    if not names:
        no_ids = f.lit(None).cast("array<string>").alias("cannot")
        return read.select("*", f.lit(None).cast("string").alias("link"), no_ids)
    nodes = context.spark.createDataFrame(sorted(names), "side int, id string")
    present = read.join(f.broadcast(nodes), ["side", "id"]).select("side", "id").collect()
    by_node = decisions(must, cannot, {(row["side"], row["id"]) for row in present})
    if by_node.ignored:
        context.report("lists", {"ignored": by_node.ignored})
    rows = context.spark.createDataFrame(
        [_decision(node, by_node) for node in sorted(names)],
        "side int, id string, link string, cannot array<string>",
    )
    return read.join(f.broadcast(rows), ["side", "id"], "left")


def _decision(node: tuple[int, str], by_node: Decisions) -> tuple[Any, ...]:
    link = by_node.link.get(node)
    return (*node, None if link is None else f"must:{link}", sorted(by_node.cannot.get(node, ())))


def _decided_pairs(
    spec: SimilaritySpec, context: StageContext
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    must, cannot = [*spec.must], [*spec.cannot]
    if spec.lists is not None:
        columns = (quoted(name).cast("string") for name in ("left", "right", "decision"))
        rows = context.input("lists").select(*columns).limit(_MAX_LISTED + 1).collect()
        if len(rows) > _MAX_LISTED:
            raise InputUnfit(f"lists has more than {_MAX_LISTED:,} rows.")
        for left, right, decision in rows:
            if decision not in {"must", "cannot"} or left is None or right is None:
                raise InputUnfit(f"lists: {left}, {right}: must or cannot is expected.")
            (must if decision == "must" else cannot).append((left, right))
    return must, cannot
