"""Compares the records of blocks: a kernel gets them sorted by block and generates the pairs.

A record is sent once per block, not once per pair; the pairs are generated, compared and mapped to
levels where the records are. There is no join and no distinct.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.linkage.compiled import compiled
from spark_jobs.linkage.open.agreement import Columns, pattern_codes, rarity, vectors
from spark_jobs.linkage.open.spec import FieldComparison, OpenSpec
from spark_jobs.linkage.open.strings import Floats, Rows

__all__ = [
    "BlockedRecords",
    "Candidates",
    "candidates",
    "compare_batch",
    "compare_pairs",
]

_SCHEMA: Final = "l long, r long, rules long, pattern long, rarity double"
_BATCH_PAIRS: Final = 500_000
_TASK_PAIRS: Final = 1_000_000
_TASK_RECORDS: Final = 100_000
_MAX_TASKS: Final = 10_000


def compare_pairs(records: DataFrame, spec: OpenSpec, pairs: int, rows: int) -> DataFrame:
    """Compare all pairs of all blocks, once each; the estimated `pairs` and `rows` set the tasks.

    Returns:
        ``l`` and ``r`` (rows, l < r), the ``rules`` that find the pair as bits, ``pattern``, and
        ``rarity`` in bits.
    """
    tasks = 1 + max(pairs // _TASK_PAIRS, rows // _TASK_RECORDS)
    blocked = (
        records.select(*_columns_to_send(records), f.posexplode("keys").alias("rule", "key"))
        .where(f.col("key") != 0)
        .repartition(min(tasks, _MAX_TASKS), "rule", "key")
        .sortWithinPartitions("rule", "key", "source", f.col("known").isNotNull(), "row")
    )
    return blocked.mapInArrow(_Comparer(spec.comparisons, spec.within), _SCHEMA)


def _columns_to_send(records: DataFrame) -> list[str]:
    columns = [name for name in records.columns if name[0] in "cnf" and name[1:].isdigit()]
    return ["row", "source", "known", "keys", *columns]


@dataclass(frozen=True, slots=True)
class _Comparer:
    comparisons: Sequence[FieldComparison]
    within: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for blocks in _whole_blocks(batches):
            columns, rows = Columns(blocks), blocks.column("row").to_numpy()
            for pairs in candidates(_blocked_records(blocks, within=self.within)):
                yield compare_batch(self.comparisons, columns, rows, pairs)


def compare_batch(
    comparisons: Sequence[FieldComparison], columns: Columns, rows: Rows, pairs: Candidates
) -> pa.RecordBatch:
    """Compare pairs of records with these `rows`; return the columns of `compare_pairs`."""
    levels = vectors(comparisons, columns, pairs.i, pairs.j)
    left, right = rows[pairs.i], rows[pairs.j]
    arrays: list[Rows | Floats] = [
        np.minimum(left, right),
        np.maximum(left, right),
        pairs.rules,
        pattern_codes(comparisons, levels),
        rarity(comparisons, columns, levels, pairs.i),
    ]
    names = [part.split()[0] for part in _SCHEMA.split(", ")]
    return pa.RecordBatch.from_arrays([pa.array(values) for values in arrays], names=names)


def _whole_blocks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Cut a sorted stream at the ends of blocks."""
    pending: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        cut = _last_block(batch, pending[-1] if pending else None)
        if cut is not None:
            yield pa.Table.from_batches([*pending, batch.slice(0, cut)]).combine_chunks()
            pending = []
        pending.append(batch.slice(cut or 0))
    if pending:
        yield pa.Table.from_batches(pending).combine_chunks()


def _last_block(batch: pa.RecordBatch, before: pa.RecordBatch | None) -> int | None:
    """Return where the last block of a batch starts; None: with this batch or an earlier one."""
    rule, key = (batch.column(name).to_numpy() for name in ("rule", "key"))
    other = np.flatnonzero((rule != rule[-1]) | (key != key[-1]))
    if len(other):
        return int(other[-1]) + 1
    if before is None:
        return None
    last = before.num_rows - 1
    same = before["rule"][last].as_py() == rule[0] and before["key"][last].as_py() == key[0]
    return None if same else 0


def _blocked_records(table: pa.Table, *, within: bool) -> BlockedRecords:
    keys = table.column("keys").combine_chunks()
    flat = keys.flatten().to_numpy().reshape(table.num_rows, -1)
    return BlockedRecords(
        rule=table.column("rule").to_numpy().astype(np.int8),
        keys=flat,
        source=table.column("source").to_numpy().astype(np.int16),
        known=table.column("known").is_valid().to_numpy(),
        within=within,
    )


class BlockedRecords(NamedTuple):
    """Records in the order of their blocks: the rule of the block, and the keys under all rules.

    `known` is whether the record's cluster is known, `within` whether records of one table are
    compared. In a block, records with the same table and `known` are adjacent: such a run is either
    compared with a record or skipped in one step, so the work is proportional to the pairs.
    """

    rule: NDArray[np.int8]
    keys: Rows
    source: NDArray[np.int16]
    known: NDArray[np.bool_]
    within: bool


class Candidates(NamedTuple):
    """Pairs to compare: rows i and j, and for each pair the rules that find it as bits."""

    i: Rows
    j: Rows
    rules: Rows


def candidates(records: BlockedRecords) -> Iterator[Candidates]:
    """Yield all pairs in batches of bounded size, each pair once, by the first rule that finds it.

    Records are sorted by rule, key, source and known. A record carries its keys under all rules
    (0: no block), so the pair itself shows whether an earlier rule also finds it, and no distinct
    is needed.
    """
    i, j, rules = (np.empty(_BATCH_PAIRS, np.int64) for _ in range(3))
    ends = _run_ends(records)
    at, other = 0, 1
    while at < len(records.rule):
        count, at, other = _fill(*records, ends, at, other, i, j, rules)
        if count:
            yield Candidates(i[:count].copy(), j[:count].copy(), rules[:count].copy())


def _run_ends(records: BlockedRecords) -> Rows:
    """Return for each record the end of its run: the same block, table and `known`."""
    count = len(records.rule)
    block_keys = records.keys[np.arange(count), records.rule]
    last = np.ones(count, np.bool_)
    last[:-1] = np.logical_or.reduce(
        [c[1:] != c[:-1] for c in (records.rule, block_keys, records.source, records.known)]
    )
    ends = np.flatnonzero(last) + 1
    return np.repeat(ends, np.diff(ends, prepend=0))


@compiled
def _fill(
    rule: Any,
    keys: Any,
    source: Any,
    known: Any,
    within: bool,
    ends: Any,
    at: int,
    other: int,
    i: Any,
    j: Any,
    rules: Any,
) -> Any:
    """Fill i, j and rules; return the number of pairs, and where to continue."""
    count = 0
    while at < len(rule):
        r = rule[at]
        while other < len(rule) and rule[other] == r and keys[other, r] == keys[at, r]:
            if (known[at] and known[other]) or not (within or source[at] != source[other]):
                other = ends[other]  # skip its run: none of it is compared
                continue
            mask = _shared(keys, at, other)
            # A pair that an earlier rule also finds is yielded there.
            if mask & ((1 << r) - 1) == 0:
                i[count], j[count], rules[count] = at, other, mask
                count += 1
            other += 1
            if count == len(i):
                return count, at, other
        at += 1
        other = at + 1
    return count, at, other


@compiled
def _shared(keys: Any, at: int, other: int) -> int:
    """Return the rules under which both records have the same key, as bits."""
    mask = 0
    for r in range(keys.shape[1]):
        if keys[at, r] != 0 and keys[at, r] == keys[other, r]:
            mask |= 1 << r
    return mask
