"""Links records as they arrive, batch by batch, and commits each batch.

A batch compares its records with stored records of other owners, and with each other: all pairs
with at least one new record. The links of all batches are thus the links of all records. The last
commit and the records determine a batch, so a repeated batch has the same result; only the expiry
of stored records depends on the clock.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from mediator.base.clock import Clock, SystemClock
from spark_jobs.atomic_file import atomic_file
from spark_jobs.commit_directory import StateMismatch
from spark_jobs.linkage.private.comparing import (
    blocks_of,
    compare_blocks,
    sorted_spans,
    tasks_between,
)
from spark_jobs.linkage.private.kept_blocks import merge_blocks, read_blocks, write_blocks
from spark_jobs.linkage.private.records import check_records, frequencies_of
from spark_jobs.linkage.private.spec import PrivateSpec
from spark_jobs.linkage.private.stages import all_pairs, comparison_of, name_links, order_in
from spark_jobs.linkage.private.stream_state import KeptBlocks, LinkageCommit, LinkageDirectory
from spark_jobs.linkage.private.vectors import BitOrder
from spark_jobs.runner.specification import FileSource

__all__ = ["LinkageStream"]

_FAN: Final = 8
"""Stored blocks of a tier that are merged into the next: a record is rewritten once per tier."""

_EPOCHS: Final = 4
"""Steps in which state expires: merged records arrived within one of them, so a record is stored at
most a quarter longer than the retention."""

_BITS: Final = 8


class LinkageStream:
    """Links records as they arrive; its state is in a directory, which outlives the process.

    Args:
        directory: The directory, locked.
        retention_s: Seconds for which a record is stored after its arrival; None: forever.

    Raises:
        StateMismatch: The directory belongs to another job.
    """

    def __init__(
        self,
        directory: LinkageDirectory,
        session: SparkSession,
        spec: PrivateSpec,
        retention_s: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.directory = directory
        self.session = session
        self.spec = spec
        self._names = list(spec.owners)
        self._retention_s = retention_s
        self._clock = clock or SystemClock()
        self._job = _fingerprint(spec)
        if directory.latest().job not in ("", self._job):
            raise StateMismatch(
                f"{directory.root} is the state of a job with other owners, files or threshold, or"
                " another field"
            )

    def process(self, batch: int, read: Callable[[], DataFrame]) -> LinkageCommit:
        """Link the records of a batch, and commit its links and its state together.

        A committed batch is not executed again.

        Args:
            read: Returns its records: ``party``, ``id``, ``bits``.

        Raises:
            InputUnfit: A record cannot be compared; nothing of the batch is stored.
            StateMismatch: It is not the next batch.
        """
        before = self.directory.latest()
        if not self.directory.is_next(batch, before):
            return before
        arrived_s = max(before.arrived_s, self._clock.now())
        draft = replace(
            before,
            batch=batch,
            attempt=uuid4().hex,
            job=self._job,
            arrived_s=arrived_s,
            kept=self._retain(before.kept, arrived_s),
            has_results=False,
        )
        records = read().persist()  # otherwise each step reads and decodes the files
        try:
            commit = self._link(draft, records)
        finally:
            records.unpersist()
        self.directory.commit(commit, before)
        return commit

    def _link(self, draft: LinkageCommit, records: DataFrame) -> LinkageCommit:
        kept_bytes = len(draft.frequency) // _BITS if draft.frequency else None
        counts = check_records(records, self._names, of_all=False, kept_bytes=kept_bytes)
        rows = sum(counts.values())
        if not rows:
            return draft
        order = draft.order or order_in(frequencies_of(records), rows)
        new_blocks = write_blocks(
            blocks_of(records, order, rows),
            self.directory.root,
            self._name(draft, 0),
            0,
            draft.arrived_s,
        )
        links, pairs = self._compare(draft, new_blocks, order)
        self._write(draft, links)
        return replace(
            draft,
            frequency=tuple(order.frequency.tolist()),
            ordered=order.records,
            kept=(*self._merge(draft, order.words), new_blocks),
            records=draft.records + rows,
            pairs=draft.pairs + pairs,
            links=draft.links + len(links),
            has_results=len(links) > 0,
        )

    def _compare(
        self, draft: LinkageCommit, new_blocks: KeptBlocks, order: BitOrder
    ) -> tuple[pa.Table, int]:
        """Compare new blocks; return the links, and the number of pairs."""
        comparison = comparison_of(self.spec, order)
        old_spans, spans = draft.spans, sorted_spans([*draft.spans, *new_blocks.spans])
        tasks = tasks_between(spans, comparison, {span.block for span in old_spans})
        needed = {span.block for task in tasks for span in (task.span, *task.partners)}
        sources = [
            blocks
            for blocks in (*draft.kept, new_blocks)
            if any(span.block in needed for span in blocks.spans)
        ]
        pairs = all_pairs(spans) - all_pairs(old_spans)
        if not sources:
            return _NO_LINKS, pairs
        blocks = read_blocks(self.session, self.directory.root, sources)
        matches, _ = compare_blocks(blocks, tasks, comparison, lambda *_: None)
        if not len(matches):
            return _NO_LINKS, pairs
        frame = self.session.createDataFrame(matches)
        return name_links(frame, self._names, None).toArrow(), pairs

    def _write(self, draft: LinkageCommit, links: pa.Table) -> None:
        if not len(links):
            return
        staging = self.directory.staging(draft.batch, draft.attempt)
        staging.mkdir(parents=True)
        with atomic_file(staging / "links.parquet") as file:
            pq.write_table(links, file, compression="lz4")

    def _retain(self, kept: tuple[KeptBlocks, ...], now_s: float) -> tuple[KeptBlocks, ...]:
        if self._retention_s is None:
            return kept
        return tuple(blocks for blocks in kept if now_s - blocks.arrived_s <= self._retention_s)

    def _merge(self, draft: LinkageCommit, words: int) -> tuple[KeptBlocks, ...]:
        """Merge a tier's blocks once there are many, so that files and blocks stay few."""
        groups: defaultdict[tuple[int, int], list[KeptBlocks]] = defaultdict(list)
        for blocks in draft.kept:
            groups[blocks.tier, self._epoch(blocks)].append(blocks)
        merged: list[KeptBlocks] = []
        for (tier, epoch), group in sorted(groups.items()):
            if len(group) < _FAN:
                merged += group
                continue
            name = f"{self._name(draft, tier + 1)}-{epoch}"
            merged.append(merge_blocks(self.session, self.directory.root, group, name, words))
        return tuple(merged)

    def _epoch(self, kept: KeptBlocks) -> int:
        if self._retention_s is None:
            return 0
        return int(kept.arrived_s / self._retention_s * _EPOCHS)

    def _name(self, draft: LinkageCommit, tier: int) -> str:
        return f"{draft.batch}-{draft.attempt}-{tier}"


_NO_LINKS: Final = pa.table({})


def _fingerprint(spec: PrivateSpec) -> str:
    """Return a digest of what stored records and links depend on, which excludes filters."""
    owners = []
    for name, source in spec.owners.items():
        assert isinstance(source, FileSource)  # a job without a service has no classes
        path = str(Path(source.path).absolute())
        owners.append([name, path, source.format, sorted(source.rename.items())])
    text = json.dumps([owners, spec.bits, str(spec.threshold)])
    return blake2b(text.encode(), digest_size=16).hexdigest()
