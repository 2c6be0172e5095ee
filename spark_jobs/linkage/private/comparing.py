"""Comparing on Spark: records become blocks, pairs of blocks become tasks.

See docs/papers/pprl.md, 2.4.

Pairs of blocks in which no two records can be alike by length make no task. A task is one block
against a few others, of about as many pairs as every other task whatever the cardinalities'
distribution. Tasks are sent in batches of a few seconds, the heaviest first, and their matches are
collected by the driver: matches are few, or the threshold is of no use.

Where a GPU is used, all blocks of a batch are sent to one process, which holds it (`gpu.hybrid`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from spark_jobs.gpu import uses_gpu
from spark_jobs.linkage.private.blocks import (
    MATCHES,
    RESULT,
    BlockComparison,
    NamedBlock,
    PairCounts,
    RecordBlock,
    to_record_batch,
)
from spark_jobs.linkage.private.gpu.hybrid import compare_batch
from spark_jobs.linkage.private.vectors import BitOrder, cardinalities, unpacked
from spark_jobs.runner.port import InputUnfit

__all__ = ["BlockSpan", "blocks_of", "compared", "slots_of", "spans_of", "tasks_between"]

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

_MOST_MATCHES: Final = 20_000_000
_ROWS_OF_A_PARTITION: Final = 8 * BLOCK

_BLOCKS: Final = pa.schema(
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


@dataclass(frozen=True, slots=True)
class BlockSpan:
    """A block: its owner, its number of records, and its least and greatest cardinality."""

    block: str
    party: int
    records: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Task:
    """One block, and those of another owner that it is compared with."""

    left: BlockSpan
    rights: tuple[BlockSpan, ...]

    @property
    def pairs(self) -> int:
        return self.left.records * sum(right.records for right in self.rights)


def blocks_of(records: DataFrame, order: BitOrder, rows: int) -> DataFrame:
    """Rewrite records in the common order, sort them by cardinality and cut them into blocks.

    The records are ``rows`` rows of ``party``, ``id`` and ``bits``.
    """
    schema = "party int, id string, size int, words binary"
    rewritten = records.mapInArrow(lambda batches: _rewritten(batches, order), schema)
    keys = ["party", "size", "id"]
    partitions = -(-rows // _ROWS_OF_A_PARTITION)
    sorted_ = rewritten.repartitionByRange(partitions, *keys).sortWithinPartitions(*keys)
    words, most = order.words, BLOCK
    return sorted_.mapInArrow(
        lambda batches: _cut(batches, words, most), from_arrow_schema(_BLOCKS)
    )


def _rewritten(batches: Iterable[pa.RecordBatch], order: BitOrder) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        words = order.rewritten(unpacked(batch.column("bits").to_pylist()))
        yield pa.RecordBatch.from_arrays(
            [
                batch.column("party"),
                batch.column("id"),
                pa.array(cardinalities(words), pa.int32()),
                pa.array([row.tobytes() for row in words], pa.binary()),
            ],
            names=["party", "id", "size", "words"],
        )


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
    return pa.RecordBatch.from_arrays(
        [pa.array([cell], each.type) for cell, each in zip((*cells, *blobs), _BLOCKS, strict=True)],
        schema=_BLOCKS,
    )


def spans_of(blocks: DataFrame) -> list[BlockSpan]:
    """List the blocks in a stable order."""
    rows = blocks.select("block", "party", "records", "low", "high").collect()
    spans = [BlockSpan(*row) for row in rows]
    return sorted(spans, key=lambda span: (span.party, span.low, span.high, span.block))


def tasks_between(spans: Sequence[BlockSpan], comparison: BlockComparison) -> list[Task]:
    """Pair the blocks of owners that may hold similar records, the heaviest task first."""
    limits = comparison.limits
    tasks: list[Task] = []
    for party, other in combinations(sorted({span.party for span in spans}), 2):
        rights = [span for span in spans if span.party == other]
        for left in (span for span in spans if span.party == party):
            low, high = limits.low[left.low], limits.high[left.high]
            near = [right for right in rights if right.high >= low and right.low <= high]
            tasks += [Task(left, group) for group in _groups(left, near)]
    return sorted(tasks, key=lambda task: -task.pairs)


def _groups(left: BlockSpan, rights: Sequence[BlockSpan]) -> Iterator[tuple[BlockSpan, ...]]:
    group: list[BlockSpan] = []
    for right in rights:
        if group and left.records * sum(r.records for r in [*group, right]) > TASK_PAIRS:
            yield tuple(group)
            group = []
        group.append(right)
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
    tables, tally, count = [MATCHES.empty_table()], PairCounts(), 0
    for first in range(0, len(tasks), at_once):
        progress(first, len(tasks))
        batch = tasks[first : first + at_once]
        if together:
            result = compare_in_one_process(blocks, batch, comparison, cores)
        else:
            result = _compare_on_cores(blocks, batch, comparison, min(cores, len(batch)))
        tallied, before = pc.is_valid(result["tally"]), tally.on_gpu
        for counted in result.filter(tallied)["tally"].to_pylist():
            tally.add(PairCounts(*counted))
        together = together and tally.on_gpu > before  # a GPU that has failed is not used again
        tables.append(result.filter(pc.invert(tallied)).select(MATCHES.names).cast(MATCHES))
        count += len(tables[-1])
        if count > _MOST_MATCHES:
            raise InputUnfit(f"There are more than {_MOST_MATCHES:,} matches: raise the threshold.")
    progress(len(tasks), len(tasks))
    return pa.concat_tables(tables), tally


def _compare_on_cores(
    blocks: DataFrame, tasks: Sequence[Task], comparison: BlockComparison, slots: int
) -> pa.Table:
    rows = [
        (span.block, number % slots, number, role)
        for number, task in enumerate(tasks)
        for role, span in enumerate((task.left, *task.rights))
    ]
    assignment = blocks.sparkSession.createDataFrame(
        rows, "block string, slot int, task int, role int"
    )
    needed = _needed(blocks, assignment)
    sent = needed.repartitionById(slots, "slot").sortWithinPartitions("task", "role")
    return sent.mapInArrow(
        lambda batches: _done(batches, comparison), from_arrow_schema(RESULT)
    ).toArrow()


def _needed(blocks: DataFrame, assignment: DataFrame) -> DataFrame:
    columns = blocks.select("block", "party", "ids", "ranks", "words")
    return columns.join(f.broadcast(assignment), "block")


def compare_in_one_process(
    blocks: DataFrame, tasks: Sequence[Task], comparison: BlockComparison, cores: int
) -> pa.Table:
    """Compare the blocks of tasks in one process, with the GPU and all cores; each is sent once."""
    ordered = sorted(tasks, key=lambda task: (task.left.party, task.left.low, task.left.block))
    pairs = [(task.left.block, right.block) for task in ordered for right in task.rights]
    names = sorted({name for pair in pairs for name in pair})
    assignment = blocks.sparkSession.createDataFrame([(name,) for name in names], "block string")
    sent = _needed(blocks, assignment).coalesce(1)
    return sent.mapInArrow(
        lambda batches: compare_batch(batches, comparison, pairs, cores), from_arrow_schema(RESULT)
    ).toArrow()


def _done(
    batches: Iterable[pa.RecordBatch], comparison: BlockComparison
) -> Iterator[pa.RecordBatch]:
    """Compare the first block of each task with those that follow it."""
    left: NamedBlock | None = None
    for batch in batches:
        for row in batch.to_pylist():
            named = NamedBlock.of(row, len(comparison.by_selectivity))
            if row["role"] == 0:
                left = named
            else:
                assert left is not None
                yield to_record_batch(left, named, comparison.compare(left.block, named.block))


@lru_cache(maxsize=8)
def slots_of(spark: SparkSession) -> int:
    """Return the cores of the session's cluster, or of this machine where that is the cluster.

    It is the number of partitions that Spark divides a range into, which follows the cores of all
    executors. `SparkContext.defaultParallelism` is the same, but not over Connect.
    """
    partitions = spark.range(_MORE_THAN_CORES).select(f.spark_partition_id().alias("partition"))
    return partitions.distinct().count()
