"""Blocks as files: tasks write them, and merge those that have become many.

A file is written whole before anything names it, and is not changed after. A task that is repeated
writes the same file again.
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

__all__ = ["merged_blocks", "read_blocks", "write_blocks"]

_SPANS: Final = ("block", "party", "records", "low", "high")
_WRITTEN: Final = pa.schema([("file", pa.string()), *(BLOCKS.field(name) for name in _SPANS)])


def write_blocks(
    blocks: DataFrame, root: Path, name: str, tier: int, arrived_s: float
) -> KeptBlocks:
    """Write blocks, which get a name of their own.

    Args:
        root: The directory of the state.
        name: What the names of files and blocks begin with: nothing else has it.
    """
    written = blocks.mapInArrow(partial(_write, root, name), from_arrow_schema(_WRITTEN)).collect()
    spans = sorted_spans(BlockSpan(*row[1:]) for row in written)
    return KeptBlocks(
        tuple(sorted({row["file"] for row in written})), tier, arrived_s, tuple(spans)
    )


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
            # A group of rows is read at once, and a row may be some megabytes.
            writer.write_table(blocks, row_group_size=1)
            spans.append(blocks.select(_SPANS))
    files = pa.array([str(path.relative_to(root))] * count)
    written = pa.concat_tables(spans).add_column(0, _WRITTEN[0], files)
    yield from written.combine_chunks().to_batches()


def read_blocks(session: SparkSession, root: Path, kept: Iterable[KeptBlocks]) -> DataFrame:
    paths = [literal_path(str(root / path)) for each in kept for path in each.files]
    return session.read.schema(from_arrow_schema(BLOCKS)).parquet(*paths)


def merged_blocks(
    session: SparkSession, root: Path, those: Sequence[KeptBlocks], name: str, words: int
) -> KeptBlocks:
    """Cut the records of some blocks into fewer, larger ones.

    Args:
        words: The words of a record.
    """
    records = read_blocks(session, root, those).mapInArrow(
        partial(_records_in, words), from_arrow_schema(REWRITTEN)
    )
    blocks = cut_into_blocks(records, words, sum(each.records for each in those))
    arrived_s = max(each.arrived_s for each in those)
    return write_blocks(blocks, root, name, those[0].tier + 1, arrived_s)


def _records_in(words: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for cells in batch.to_pylist():
            named = NamedBlock.of(cells, words)
            parties = pa.repeat(named.party, len(named.ids))
            yield rewritten_batch(parties, named.ids, named.block.words)
