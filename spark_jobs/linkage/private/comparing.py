"""Compares records on Spark: records become blocks, pairs of blocks become tasks.

See docs/papers/pprl.md, 2.4.

Pairs of blocks whose cardinalities exclude a match get no task. A task compares one block with a
few others; tasks have similar numbers of pairs, whatever the distribution of cardinalities. Tasks
are sent in batches of a few seconds, the heaviest first, and the driver collects their matches:
matches are few, or the threshold is useless.

With a GPU, all blocks of a batch are sent to the one process that holds it (`gpu.hybrid`).
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
    "compare_blocks",
    "cut_into_blocks",
    "rewritten_batch",
    "slots_of",
    "sorted_spans",
    "spans_of",
    "tasks_between",
]

BLOCK: Final = 8192
"""Maximum records of a block."""

TASK_PAIRS: Final = 2**29
"""Maximum pairs of a task of several blocks: about a second of a core."""

TASKS_AT_ONCE: Final = 3
"""Tasks per core in a batch."""

TIMES_ON_GPU: Final = 4
"""Factor of a batch for a GPU: sending a batch takes a second."""

_RANGE_ROWS: Final = 2**16
"""More rows than any cluster has cores, so that no partition is empty."""

_PARTITION_ROWS: Final = 8 * BLOCK

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
"""Records with bits in the common order."""


@dataclass(frozen=True, slots=True)
class BlockSpan:
    """A block: its owner, its number of records, and its minimum and maximum cardinality."""

    block: str
    party: int
    records: int
    low: int
    high: int


BlockT = TypeVar("BlockT", BlockSpan, NamedBlock)


@dataclass(frozen=True, slots=True)
class Task:
    """One block, and the blocks of another owner that it is compared with."""

    span: BlockSpan
    partners: tuple[BlockSpan, ...]

    @property
    def pairs(self) -> int:
        return self.span.records * sum(partner.records for partner in self.partners)


def blocks_of(records: DataFrame, order: BitOrder, rows: int) -> DataFrame:
    """Rewrite records in the common order, sort them by cardinality and cut them into blocks.

    There are ``rows`` records with ``party``, ``id`` and ``bits``.
    """
    rewritten = records.mapInArrow(
        lambda batches: _rewrite(batches, order), from_arrow_schema(REWRITTEN)
    )
    return cut_into_blocks(rewritten, order.words, rows)


def cut_into_blocks(records: DataFrame, words: int, rows: int) -> DataFrame:
    """Sort ``rows`` records of `REWRITTEN` by cardinality, and cut them into blocks."""
    keys = ["party", "size", "id"]
    partitions = -(-rows // _PARTITION_ROWS)
    sorted_ = records.repartitionByRange(partitions, *keys).sortWithinPartitions(*keys)
    block_rows = BLOCK
    return sorted_.mapInArrow(
        lambda batches: _cut(batches, words, block_rows), from_arrow_schema(BLOCKS)
    )


def _rewrite(batches: Iterable[pa.RecordBatch], order: BitOrder) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        words = order.rewritten(unpacked(batch.column("bits").to_pylist()))
        yield rewritten_batch(batch.column("party"), batch.column("id"), words)


def rewritten_batch(parties: pa.Array, ids: pa.Array, words: Words) -> pa.RecordBatch:
    """Return records with bits in the common order as rows of `REWRITTEN`."""
    rows = [row.tobytes() for row in words]
    return pa.record_batch([parties, ids, cardinalities(words), rows], schema=REWRITTEN)


def _cut(
    batches: Iterable[pa.RecordBatch], words: int, block_rows: int
) -> Iterator[pa.RecordBatch]:
    """Collect sorted records into blocks; the last block of a partition can be small."""
    pending: list[tuple[int, str, bytes]] = []
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in ("party", "id", "words")]
        for row in zip(*columns, strict=True):
            if pending and (len(pending) == block_rows or pending[0][0] != row[0]):
                yield _block(pending, words)
                pending = []
            pending.append(row)
    if pending:
        yield _block(pending, words)


def _block(rows: Sequence[tuple[int, str, bytes]], words: int) -> pa.RecordBatch:
    # By id, so that the permutation of the stable sort by cardinality gives the ranks by id.
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
    stored: Collection[str] = frozenset(),
) -> list[Task]:
    """Pair blocks of different owners that can have similar records, the heaviest task first.

    The `stored` blocks have been compared with each other before. Each new block is compared with
    stored blocks of other owners, and with new blocks of later owners.
    """
    limits = comparison.limits
    tasks: list[Task] = []
    for party, other_party in permutations(sorted({span.party for span in spans}), 2):
        other_spans = [span for span in spans if span.party == other_party]
        if other_party < party:
            other_spans = [span for span in other_spans if span.block in stored]
        for span in spans:
            if span.party != party or span.block in stored:
                continue
            low, high = limits.low[span.low], limits.high[span.high]
            candidates = [
                partner for partner in other_spans if partner.high >= low and partner.low <= high
            ]
            tasks += [Task(span, group) for group in _groups(span, candidates)]
    return sorted(tasks, key=lambda task: -task.pairs)


def _groups(span: BlockSpan, others: Sequence[BlockSpan]) -> Iterator[tuple[BlockSpan, ...]]:
    group: list[BlockSpan] = []
    for other in others:
        if (
            group
            and span.records * sum(partner.records for partner in [*group, other]) > TASK_PAIRS
        ):
            yield tuple(group)
            group = []
        group.append(other)
    if group:
        yield tuple(group)


def compare_blocks(
    blocks: DataFrame,
    tasks: Sequence[Task],
    comparison: BlockComparison,
    progress: Callable[[int, int], None],
) -> tuple[pa.Table, PairCounts]:
    """Compare the blocks of all tasks.

    `progress` is called with the numbers of finished and of all tasks; it can raise to cancel.

    Returns:
        The matches (`MATCHES`), and the pairs that remain after each step.

    Raises:
        InputUnfit: There are too many matches.
    """
    cores = slots_of(blocks.sparkSession)
    on_gpu = comparison.by_length and uses_gpu(blocks.sparkSession)
    at_once = cores * TASKS_AT_ONCE * (TIMES_ON_GPU if on_gpu else 1)
    tables, tally = [MATCHES.empty_table()], PairCounts()
    for start in range(0, len(tasks), at_once):
        progress(start, len(tasks))
        batch = tasks[start : start + at_once]
        if on_gpu:
            result = compare_in_one_process(blocks, batch, comparison, cores)
        else:
            result = _compare_on_cores(blocks, batch, comparison, min(cores, len(batch)))
        before = tally.on_gpu
        tables.append(_collect(result, tally, comparison.max_matches))
        on_gpu = on_gpu and tally.on_gpu > before  # a GPU that failed is not used again
    progress(len(tasks), len(tasks))
    return pa.concat_tables(tables), tally


def _collect(result: DataFrame, tally: PairCounts, max_matches: int) -> pa.Table:
    """Add the counts of a batch, then collect its matches; too many would not fit the driver.

    Raises:
        InputUnfit: With earlier batches there are more than `max_matches`.
    """
    result = result.persist()  # reading the counts computes it
    try:
        tallies = result.where(f.col("tally").isNotNull()).select("tally").toArrow()
        for counts in tallies.column("tally").to_pylist():
            tally.add(PairCounts(*counts))
        if tally.matches > max_matches:
            raise InputUnfit(f"There are more than {max_matches:,} matches: raise the threshold.")
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
        for role, span in enumerate((task.span, *task.partners))
    ]
    assignment = blocks.sparkSession.createDataFrame(
        rows, "block string, slot int, task int, role int"
    )
    selected = _select_blocks(blocks, assignment)
    sent = selected.repartitionById(slots, "slot").sortWithinPartitions("task", "role")
    return sent.mapInArrow(
        lambda batches: _compare_tasks(batches, comparison), from_arrow_schema(RESULT)
    )


def _select_blocks(blocks: DataFrame, assignment: DataFrame) -> DataFrame:
    columns = blocks.select("block", "party", "ids", "ranks", "words")
    return columns.join(f.broadcast(assignment), "block")


def compare_in_one_process(
    blocks: DataFrame, tasks: Sequence[Task], comparison: BlockComparison, cores: int
) -> DataFrame:
    """Compare the blocks of tasks in one process, by GPU and all cores; send each block once."""
    ordered = sorted(tasks, key=lambda task: (task.span.party, task.span.low, task.span.block))
    pairs = [
        (left.block, right.block)
        for task in ordered
        for left, right in (_by_owner(task.span, other) for other in task.partners)
    ]
    names = sorted({name for pair in pairs for name in pair})
    assignment = blocks.sparkSession.createDataFrame([(name,) for name in names], "block string")
    sent = _select_blocks(blocks, assignment).coalesce(1)
    return sent.mapInArrow(
        lambda batches: compare_batch(batches, comparison, pairs, cores), from_arrow_schema(RESULT)
    )


def _compare_tasks(
    batches: Iterable[pa.RecordBatch], comparison: BlockComparison
) -> Iterator[pa.RecordBatch]:
    """Compare the first block of each task with the blocks that follow it."""
    compare = MatchLimit(comparison.max_matches).wrap(lambda pair: comparison.compare(*pair))
    first_block: NamedBlock | None = None
    for batch in batches:
        for row in batch.to_pylist():
            block = NamedBlock.of(row, len(comparison.by_selectivity))
            if row["role"] == 0:
                first_block = block
            else:
                assert first_block is not None
                left, right = _by_owner(first_block, block)
                yield from to_record_batches(left, right, compare((left.block, right.block)))


def _by_owner(one: BlockT, other: BlockT) -> tuple[BlockT, BlockT]:
    """Return two blocks, the earlier owner's left: links name owners in this order."""
    return (one, other) if one.party < other.party else (other, one)


@lru_cache(maxsize=8)
def slots_of(spark: SparkSession) -> int:
    """Return the cores of the session's cluster, which can be this machine.

    Measured as the partitions of a range, which follow the cores of all executors.
    `SparkContext.defaultParallelism` has the same value, but not over Connect.
    """
    partitions = spark.range(_RANGE_ROWS).select(f.spark_partition_id().alias("partition"))
    return partitions.distinct().count()
