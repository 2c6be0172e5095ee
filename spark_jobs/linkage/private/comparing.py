"""Comparing on Spark: records become blocks, pairs of blocks become tasks.

See docs/papers/pprl.md, 2.4.

Pairs of blocks in which no two records can be alike by length make no task. A task is one block
against a few others, of about as many pairs as every other task whatever the cardinalities'
distribution. Tasks are sent in batches of a few seconds, the heaviest first, and their matches are
collected by the driver: matches are few, or the threshold is of no use.

Where a GPU is used, all blocks of a batch are sent to one process, which holds it (`gpu.hybrid`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from spark_jobs.gpu import uses_gpu
from spark_jobs.linkage.private.blocks import (
    MATCHES,
    RESULT,
    BlockComparison,
    MatchLimit,
    NamedBlock,
    PairCounts,
    RecordBlock,
    to_record_batches,
)
from spark_jobs.linkage.private.gpu.hybrid import compare_batch
from spark_jobs.linkage.private.vectors import BitOrder, Words, cardinalities, unpacked
from spark_jobs.runner.port import InputUnfit

__all__ = [
    "BLOCKS",
    "REWRITTEN",
    "BlockSpan",
    "blocks_of",
    "compared",
    "cut_into_blocks",
    "rewritten_batch",
    "slots_of",
    "sorted_spans",
    "spans_of",
    "tasks_between",
]

BLOCK: Final = 8192
"""Records of a block at most."""

TASK_PAIRS: Final = 2**29
"""About a second of a core."""

TASKS_AT_ONCE: Final = 3
"""Of each core in a batch."""

TIMES_ON_GPU: Final = 4
"""Factor for a batch that a GPU does most of: sending one takes a second."""

_MORE_THAN_CORES: Final = 2**16
"""More than any cluster has cores, so that no partition is empty."""

_ROWS_OF_A_PARTITION: Final = 8 * BLOCK

BLOCKS: Final = pa.schema(
    [
        ("block", pa.string()),
        ("party", pa.int32()),
        ("records", pa.int32()),
        ("low", pa.int32()),
        ("high", pa.int32()),
        ("ids", pa.list_(pa.string())),
        ("ranks", pa.binary()),
        ("words", pa.binary()),
    ]
)

REWRITTEN: Final = pa.schema(
    [("party", pa.int32()), ("id", pa.string()), ("size", pa.int32()), ("words", pa.binary())]
)
"""Records in the common order."""


@dataclass(frozen=True, slots=True)
class BlockSpan:
    """A block: its owner, its number of records, and its least and greatest cardinality."""

    block: str
    party: int
    records: int
    low: int
    high: int


BlockT = TypeVar("BlockT", BlockSpan, NamedBlock)


@dataclass(frozen=True, slots=True)
class Task:
    """One block, and those of another owner that it is compared with."""

    one: BlockSpan
    others: tuple[BlockSpan, ...]

    @property
    def pairs(self) -> int:
        return self.one.records * sum(other.records for other in self.others)


def blocks_of(records: DataFrame, order: BitOrder, rows: int) -> DataFrame:
    """Rewrite records in the common order, sort them by cardinality and cut them into blocks.

    The records are ``rows`` rows of ``party``, ``id`` and ``bits``.
    """
    rewritten = records.mapInArrow(
        lambda batches: _rewritten(batches, order), from_arrow_schema(REWRITTEN)
    )
    return cut_into_blocks(rewritten, order.words, rows)


def cut_into_blocks(records: DataFrame, words: int, rows: int) -> DataFrame:
    """Sort ``rows`` records of `REWRITTEN` by cardinality, and cut them into blocks."""
    keys = ["party", "size", "id"]
    partitions = -(-rows // _ROWS_OF_A_PARTITION)
    sorted_ = records.repartitionByRange(partitions, *keys).sortWithinPartitions(*keys)
    most = BLOCK
    return sorted_.mapInArrow(lambda batches: _cut(batches, words, most), from_arrow_schema(BLOCKS))


def _rewritten(batches: Iterable[pa.RecordBatch], order: BitOrder) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        words = order.rewritten(unpacked(batch.column("bits").to_pylist()))
        yield rewritten_batch(batch.column("party"), batch.column("id"), words)


def rewritten_batch(parties: pa.Array, ids: pa.Array, words: Words) -> pa.RecordBatch:
    """Return records in the common order as rows of `REWRITTEN`."""
    rows = [row.tobytes() for row in words]
    return pa.record_batch([parties, ids, cardinalities(words), rows], schema=REWRITTEN)


def _cut(batches: Iterable[pa.RecordBatch], words: int, most: int) -> Iterator[pa.RecordBatch]:
    """Gather sorted records into blocks; the last one of a partition may be small."""
    waiting: list[tuple[int, str, bytes]] = []
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in ("party", "id", "words")]
        for row in zip(*columns, strict=True):
            if waiting and (len(waiting) == most or waiting[0][0] != row[0]):
                yield _block(waiting, words)
                waiting = []
            waiting.append(row)
    if waiting:
        yield _block(waiting, words)


def _block(rows: Sequence[tuple[int, str, bytes]], words: int) -> pa.RecordBatch:
    # By id: the stable sort by cardinality then returns the ranks by id.
    rows = sorted(rows, key=lambda row: row[1])
    flat = np.frombuffer(b"".join([row[2] for row in rows]), dtype=np.uint64)
    block, order = RecordBlock.of(flat.reshape(len(rows), words))
    ids = [rows[number][1] for number in order]
    party = rows[0][0]
    low, high = int(block.sizes[0]), int(block.sizes[-1])
    cells = (f"{party} {ids[0]}", party, len(ids), low, high, ids)
    blobs = (block.ranks.tobytes(), block.words.tobytes())
    return pa.record_batch([[cell] for cell in (*cells, *blobs)], schema=BLOCKS)


def spans_of(blocks: DataFrame) -> list[BlockSpan]:
    """List the blocks in a stable order."""
    rows = blocks.select("block", "party", "records", "low", "high").collect()
    return sorted_spans(BlockSpan(*row) for row in rows)


def sorted_spans(spans: Iterable[BlockSpan]) -> list[BlockSpan]:
    return sorted(spans, key=lambda span: (span.party, span.low, span.high, span.block))


def tasks_between(
    spans: Sequence[BlockSpan],
    comparison: BlockComparison,
    kept: Collection[str] = frozenset(),
) -> list[Task]:
    """Pair the blocks of owners that may hold similar records, the heaviest task first.

    Blocks that are `kept` have been compared with one another before. Each of the others is
    compared with those of them that are of other owners, and with the others of later owners.
    """
    limits = comparison.limits
    tasks: list[Task] = []
    for one, other in permutations(sorted({span.party for span in spans}), 2):
        others = [span for span in spans if span.party == other]
        if other < one:
            others = [span for span in others if span.block in kept]
        for span in spans:
            if span.party != one or span.block in kept:
                continue
            low, high = limits.low[span.low], limits.high[span.high]
            near = [each for each in others if each.high >= low and each.low <= high]
            tasks += [Task(span, group) for group in _groups(span, near)]
    return sorted(tasks, key=lambda task: -task.pairs)


def _groups(one: BlockSpan, others: Sequence[BlockSpan]) -> Iterator[tuple[BlockSpan, ...]]:
    group: list[BlockSpan] = []
    for other in others:
        if group and one.records * sum(each.records for each in [*group, other]) > TASK_PAIRS:
            yield tuple(group)
            group = []
        group.append(other)
    if group:
        yield tuple(group)


def compared(
    blocks: DataFrame,
    tasks: Sequence[Task],
    comparison: BlockComparison,
    progress: Callable[[int, int], None],
) -> tuple[pa.Table, PairCounts]:
    """Compare the blocks of all tasks.

    `progress` is called with the number of finished tasks, and of all; it may raise to end them.

    Returns:
        The matches (`MATCHES`), and the pairs left after each step.

    Raises:
        InputUnfit: There are too many matches.
    """
    cores = slots_of(blocks.sparkSession)
    together = comparison.by_length and uses_gpu(blocks.sparkSession)
    at_once = cores * TASKS_AT_ONCE * (TIMES_ON_GPU if together else 1)
    tables, tally = [MATCHES.empty_table()], PairCounts()
    for first in range(0, len(tasks), at_once):
        progress(first, len(tasks))
        batch = tasks[first : first + at_once]
        if together:
            result = compare_in_one_process(blocks, batch, comparison, cores)
        else:
            result = _compare_on_cores(blocks, batch, comparison, min(cores, len(batch)))
        before = tally.on_gpu
        tables.append(_collected(result, tally, comparison.most))
        together = together and tally.on_gpu > before  # a GPU that has failed is not used again
    progress(len(tasks), len(tasks))
    return pa.concat_tables(tables), tally


def _collected(result: DataFrame, tally: PairCounts, most: int) -> pa.Table:
    """Add the counts of a batch, then collect its matches: the driver has no room for too many.

    Raises:
        InputUnfit: There are more than `most`, with those of earlier batches.
    """
    result = result.persist()  # it is computed when the counts are read
    try:
        counted = result.where(f.col("tally").isNotNull()).select("tally").toArrow()
        for counts in counted.column("tally").to_pylist():
            tally.add(PairCounts(*counts))
        if tally.matches > most:
            raise InputUnfit(f"There are more than {most:,} matches: raise the threshold.")
        matches = result.where(f.col("tally").isNull()).select(*MATCHES.names)
        return matches.toArrow().cast(MATCHES)
    finally:
        result.unpersist()


def _compare_on_cores(
    blocks: DataFrame, tasks: Sequence[Task], comparison: BlockComparison, slots: int
) -> DataFrame:
    rows = [
        (span.block, number % slots, number, role)
        for number, task in enumerate(tasks)
        for role, span in enumerate((task.one, *task.others))
    ]
    assignment = blocks.sparkSession.createDataFrame(
        rows, "block string, slot int, task int, role int"
    )
    needed = _needed(blocks, assignment)
    sent = needed.repartitionById(slots, "slot").sortWithinPartitions("task", "role")
    return sent.mapInArrow(lambda batches: _done(batches, comparison), from_arrow_schema(RESULT))


def _needed(blocks: DataFrame, assignment: DataFrame) -> DataFrame:
    columns = blocks.select("block", "party", "ids", "ranks", "words")
    return columns.join(f.broadcast(assignment), "block")


def compare_in_one_process(
    blocks: DataFrame, tasks: Sequence[Task], comparison: BlockComparison, cores: int
) -> DataFrame:
    """Compare the blocks of tasks in one process, with the GPU and all cores; each is sent once."""
    ordered = sorted(tasks, key=lambda task: (task.one.party, task.one.low, task.one.block))
    pairs = [
        (left.block, right.block)
        for task in ordered
        for left, right in (_by_owner(task.one, other) for other in task.others)
    ]
    names = sorted({name for pair in pairs for name in pair})
    assignment = blocks.sparkSession.createDataFrame([(name,) for name in names], "block string")
    sent = _needed(blocks, assignment).coalesce(1)
    return sent.mapInArrow(
        lambda batches: compare_batch(batches, comparison, pairs, cores), from_arrow_schema(RESULT)
    )


def _done(
    batches: Iterable[pa.RecordBatch], comparison: BlockComparison
) -> Iterator[pa.RecordBatch]:
    """Compare the first block of each task with those that follow it."""
    compare = MatchLimit(comparison.most).limited(lambda pair: comparison.compare(*pair))
    one: NamedBlock | None = None
    for batch in batches:
        for row in batch.to_pylist():
            named = NamedBlock.of(row, len(comparison.by_selectivity))
            if row["role"] == 0:
                one = named
            else:
                assert one is not None
                left, right = _by_owner(one, named)
                yield from to_record_batches(left, right, compare((left.block, right.block)))


def _by_owner(one: BlockT, other: BlockT) -> tuple[BlockT, BlockT]:
    """Return two blocks, that of the earlier owner left: links name their owners in this order."""
    return (one, other) if one.party < other.party else (other, one)


@lru_cache(maxsize=8)
def slots_of(spark: SparkSession) -> int:
    """Return the cores of the session's cluster, or of this machine where that is the cluster.

    It is the number of partitions that Spark divides a range into, which follows the cores of all
    executors. `SparkContext.defaultParallelism` is the same, but not over Connect.
    """
    partitions = spark.range(_MORE_THAN_CORES).select(f.spark_partition_id().alias("partition"))
    return partitions.distinct().count()
