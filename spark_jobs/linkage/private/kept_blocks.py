"""Stores blocks as files: tasks write them, and merge them once there are many.

A file is complete before anything names it, and immutable afterwards. A repeated task writes the
same file again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from spark_jobs.atomic_file import atomic_file
from spark_jobs.linkage.private.blocks import NamedBlock
from spark_jobs.linkage.private.comparing import (
    BLOCKS,
    REWRITTEN,
    BlockSpan,
    cut_into_blocks,
    rewritten_batch,
    sorted_spans,
)
from spark_jobs.linkage.private.stream_state import BLOCKS_FOLDER, KeptBlocks
from spark_jobs.paths import literal_path

__all__ = ["merge_blocks", "read_blocks", "write_blocks"]

_SPANS: Final = ("block", "party", "records", "low", "high")
_FILES_AND_SPANS: Final = pa.schema(
    [("file", pa.string()), *(BLOCKS.field(name) for name in _SPANS)]
)


def write_blocks(
    blocks: DataFrame, root: Path, name: str, tier: int, arrived_s: float
) -> KeptBlocks:
    """Write blocks under new names.

    Args:
        root: The directory of the state.
        name: The unique prefix of the names of files and blocks.
    """
    rows = blocks.mapInArrow(
        partial(_write, root, name), from_arrow_schema(_FILES_AND_SPANS)
    ).collect()
    spans = sorted_spans(BlockSpan(*row[1:]) for row in rows)
    return KeptBlocks(tuple(sorted({row["file"] for row in rows})), tier, arrived_s, tuple(spans))


def _write(root: Path, name: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    first = next(batches, None)
    if first is None:
        return
    context = TaskContext.get()
    assert context is not None
    stem = f"{name}-{context.partitionId()}"
    path = root / BLOCKS_FOLDER / f"{stem}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    spans, count = list[pa.Table](), 0
    with (
        atomic_file(path) as file,
        pq.ParquetWriter(file, BLOCKS, compression="lz4") as writer,
    ):
        for batch in chain([first], batches):
            names = pa.array([f"{stem}-{count + row}" for row in range(len(batch))])
            count += len(batch)
            blocks = pa.Table.from_batches([batch.cast(BLOCKS)]).set_column(0, BLOCKS[0], names)
            # A row group is read at once, and a row can be some megabytes.
            writer.write_table(blocks, row_group_size=1)
            spans.append(blocks.select(_SPANS))
    files = pa.array([str(path.relative_to(root))] * count)
    files_and_spans = pa.concat_tables(spans).add_column(0, _FILES_AND_SPANS[0], files)
    yield from files_and_spans.combine_chunks().to_batches()


def read_blocks(session: SparkSession, root: Path, stored: Iterable[KeptBlocks]) -> DataFrame:
    paths = [literal_path(str(root / path)) for item in stored for path in item.files]
    return session.read.schema(from_arrow_schema(BLOCKS)).parquet(*paths)


def merge_blocks(
    session: SparkSession, root: Path, stored: Sequence[KeptBlocks], name: str, words: int
) -> KeptBlocks:
    """Cut the records of some blocks into fewer, larger blocks.

    Args:
        words: The number of words of a record.
    """
    records = read_blocks(session, root, stored).mapInArrow(
        partial(_records_in, words), from_arrow_schema(REWRITTEN)
    )
    blocks = cut_into_blocks(records, words, sum(item.records for item in stored))
    arrived_s = max(item.arrived_s for item in stored)
    return write_blocks(blocks, root, name, stored[0].tier + 1, arrived_s)


def _records_in(words: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for cells in batch.to_pylist():
            block = NamedBlock.of(cells, words)
            parties = pa.repeat(block.party, len(block.ids))
            yield rewritten_batch(parties, block.ids, block.block.words)
