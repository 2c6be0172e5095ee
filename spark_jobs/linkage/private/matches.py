"""Matches of blocks as Arrow tables, and blocks with the ids of their records."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from spark_jobs.linkage.private.blocks import BlockMatches, RecordBlock
from spark_jobs.linkage.private.vectors import Words, cardinalities

__all__ = ["MATCHES", "RESULT", "RESULT_DDL", "NamedBlock", "to_record_batch"]

MATCHES: Final = pa.schema(
    [
        ("left_party", pa.int32()),
        ("left", pa.string()),
        ("right_party", pa.int32()),
        ("right", pa.string()),
        ("overlap", pa.int64()),
        ("union", pa.int64()),
    ]
)
"""What comes of comparing: two owners, two ids, and how many bits they share and have at all."""

RESULT: Final = pa.schema([*MATCHES, ("tally", pa.list_(pa.int64()))])
"""What a task gives: matches, and in rows of their own what was counted."""

RESULT_DDL: Final = (
    "left_party int, left string, right_party int, right string, overlap bigint, union bigint,"
    " tally array<bigint>"
)


@dataclass(frozen=True, slots=True)
class NamedBlock:
    """A block, whose it is, and the ids of its records."""

    block: RecordBlock
    party: int
    ids: pa.Array

    @classmethod
    def of(cls, row: dict[str, object], words: int) -> NamedBlock:
        """Take a row of blocks, the records of which have so many words."""
        flat: Words = np.frombuffer(row["words"], dtype=np.uint64).reshape(-1, words)  # type: ignore[call-overload]  # a cell of Arrow
        ranks = np.frombuffer(row["ranks"], dtype=np.int64)  # type: ignore[call-overload]  # as above
        ids = pa.array(row["ids"], pa.string())
        return cls(RecordBlock(flat, cardinalities(flat), ranks), int(str(row["party"])), ids)


def to_record_batch(left: NamedBlock, right: NamedBlock, done: BlockMatches) -> pa.RecordBatch:
    """Name the records that two blocks have in common; the last row is the tally."""
    i, j, overlap = done.pairs.T
    union = left.block.sizes[i] + right.block.sizes[j] - overlap
    count = len(i)
    matches = pa.record_batch(
        [
            pa.array([left.party] * count, pa.int32()),
            left.ids.take(pa.array(i)),
            pa.array([right.party] * count, pa.int32()),
            right.ids.take(pa.array(j)),
            pa.array(overlap, pa.int64()),
            pa.array(union, pa.int64()),
            pa.nulls(count, RESULT.field("tally").type),
        ],
        schema=RESULT,
    )
    nothing = [pa.nulls(1, each.type) for each in MATCHES]
    last = pa.record_batch(
        [*nothing, pa.array([astuple(done.tally)], RESULT.field("tally").type)], schema=RESULT
    )
    return pa.concat_batches([matches, last])
