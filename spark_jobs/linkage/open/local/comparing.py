"""Compares the records of blocks by the kernels that Spark's tasks use, on all cores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from spark_jobs.linkage.open.agreement import Columns
from spark_jobs.linkage.open.local.blocks import key_matrix
from spark_jobs.linkage.open.pairs import BlockedRecords, Candidates, candidates, compared_batch
from spark_jobs.linkage.open.spec import OpenSpec
from spark_jobs.linkage.open.strings import Rows
from spark_jobs.runner.port import StageContext

__all__ = ["compared"]


def compared(records: pa.Table, spec: OpenSpec, context: StageContext, pairs: int) -> pa.Table:
    """All pairs of all blocks, each once, as `pairs.compared`; about `pairs` sets the progress."""
    order, blocked = _blocked(records, spec)
    columns, rows = Columns(records), records.column("row").to_numpy()
    for k in range(len(spec.comparisons)):
        columns.text(k)  # read before threads share them

    def compare(found: Candidates) -> pa.RecordBatch:
        own = Candidates(order[found.i], order[found.j], found.rules)
        return compared_batch(spec.comparisons, columns, rows, own)

    batches: list[pa.RecordBatch] = []
    done = 0
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for some in _grouped(candidates(blocked), os.cpu_count() or 1):
            batches += threads.map(compare, some)
            done += sum(len(one.i) for one in some)
            context.progress(done, max(done, pairs))
    none = Candidates(*(np.empty(0, np.int64) for _ in range(3)))
    return pa.Table.from_batches(batches or [compare(none)])


def _grouped(found: Iterator[Candidates], size: int) -> Iterator[list[Candidates]]:
    """A few batches at a time, so that no more are in memory."""
    group: list[Candidates] = []
    for one in found:
        group.append(one)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


def _blocked(records: pa.Table, spec: OpenSpec) -> tuple[Rows, BlockedRecords]:
    """Records once for each of their blocks, in the order of `BlockedRecords`, then of rows."""
    keys, rows = key_matrix(records), records.column("row").to_numpy()
    source = records.column("source").to_numpy()
    known = records.column("known").combine_chunks().is_valid().to_numpy(zero_copy_only=False)
    inside = np.lexsort((rows, known, source))
    of_rules = [_in_blocks(keys[:, rule], inside) for rule in range(keys.shape[1])]
    order = np.concatenate(of_rules)
    blocked = BlockedRecords(
        rule=np.repeat(np.arange(len(of_rules)), [len(one) for one in of_rules]).astype(np.int8),
        keys=keys[order],
        source=source[order].astype(np.int16),
        known=known[order],
        within=spec.within,
    )
    return order, blocked


def _in_blocks(keys: Rows, inside: Rows) -> Rows:
    """The records that have a block, by their keys; those of one block in the order `inside`."""
    order = inside[np.argsort(keys[inside], kind="stable")]
    blocked: Rows = order[keys[order] != 0]
    return blocked
