"""Compares the records of blocks on all cores, by the kernels of Spark's tasks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from spark_jobs.linkage.open.agreement import Columns
from spark_jobs.linkage.open.local.blocks import key_matrix
from spark_jobs.linkage.open.pairs import BlockedRecords, Candidates, candidates, compare_batch
from spark_jobs.linkage.open.spec import OpenSpec
from spark_jobs.linkage.open.strings import Rows
from spark_jobs.runner.port import StageContext

__all__ = ["compare_pairs"]


def compare_pairs(records: pa.Table, spec: OpenSpec, context: StageContext, pairs: int) -> pa.Table:
    """Compare all pairs as `pairs.compare_pairs` does; the estimate `pairs` sets the progress."""
    order, blocked = _blocked_records(records, spec)
    columns, rows = Columns(records), records.column("row").to_numpy()
    for k in range(len(spec.comparisons)):
        columns.text(k)  # convert before threads share the columns

    def compare(batch: Candidates) -> pa.RecordBatch:
        numbered = Candidates(order[batch.i], order[batch.j], batch.rules)
        return compare_batch(spec.comparisons, columns, rows, numbered)

    batches: list[pa.RecordBatch] = []
    done = 0
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for group in _group_batches(candidates(blocked), os.cpu_count() or 1):
            batches += threads.map(compare, group)
            done += sum(len(batch.i) for batch in group)
            context.progress(done, max(done, pairs))
    empty = Candidates(*(np.empty(0, np.int64) for _ in range(3)))
    return pa.Table.from_batches(batches or [compare(empty)])


def _group_batches(batches: Iterator[Candidates], size: int) -> Iterator[list[Candidates]]:
    """Group batches, which bounds the number in memory."""
    group: list[Candidates] = []
    for batch in batches:
        group.append(batch)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


def _blocked_records(records: pa.Table, spec: OpenSpec) -> tuple[Rows, BlockedRecords]:
    """Return records once per block, in the order of `BlockedRecords`, then of rows."""
    keys, rows = key_matrix(records), records.column("row").to_numpy()
    source = records.column("source").to_numpy()
    known = records.column("known").combine_chunks().is_valid().to_numpy(zero_copy_only=False)
    inside = np.lexsort((rows, known, source))
    orders = [_in_blocks(keys[:, rule], inside) for rule in range(keys.shape[1])]
    order = np.concatenate(orders)
    blocked = BlockedRecords(
        rule=np.repeat(np.arange(len(orders)), [len(part) for part in orders]).astype(np.int8),
        keys=keys[order],
        source=source[order].astype(np.int16),
        known=known[order],
        within=spec.within,
    )
    return order, blocked


def _in_blocks(keys: Rows, inside: Rows) -> Rows:
    """Return the records with a block, sorted by key, then in the order `inside`."""
    order = inside[np.argsort(keys[inside], kind="stable")]
    blocked: Rows = order[keys[order] != 0]
    return blocked
