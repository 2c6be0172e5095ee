"""Linking records as they arrive, batch by batch: what a batch compares, and what it commits.

A batch compares its records with the kept ones of other owners, and with one another: the pairs of
which at least one record is new. So the links of all batches together are those of all records.
Everything is decided by the last commit and by the records, so a batch that is repeated does the
same again; only what is too old to be kept is a matter of the clock.
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
from spark_jobs.linkage.private.comparing import blocks_of, compared, sorted_spans, tasks_between
from spark_jobs.linkage.private.kept_blocks import merged_blocks, read_blocks, write_blocks
from spark_jobs.linkage.private.records import checked, frequencies_of
from spark_jobs.linkage.private.spec import PrivateSpec
from spark_jobs.linkage.private.stages import all_pairs, comparison_of, linked, order_in
from spark_jobs.linkage.private.stream_state import KeptBlocks, LinkageCommit, LinkageDirectory
from spark_jobs.linkage.private.vectors import BitOrder
from spark_jobs.runner.specification import FileSource

__all__ = ["LinkageStream"]

_FAN: Final = 8
"""So many of a tier become one of the next: a record is rewritten once for each tier."""

_EPOCHS: Final = 4
"""In how many steps state is dropped: what is merged arrived within such a share of the retention,
so a record is kept a quarter longer than that at most."""

_BITS: Final = 8


class LinkageStream:
    """Links records as they arrive; what is kept is in a directory, for the next process too.

    Args:
        directory: Locked.
        retention_s: How long a record is kept after its arrival; None: for ever.

    Raises:
        StateMismatch: The directory is of another job.
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

        A batch that is committed already is not executed again.

        Args:
            read: Returns its records: ``party``, ``id``, ``bits``.

        Raises:
            InputUnfit: A record cannot be compared; nothing of the batch is kept.
            StateMismatch: It is not the one that comes next.
        """
        before = self.directory.latest()
        if not self.directory.is_next(batch, before):
            return before
        arrived_s = max(before.arrived_s, self._clock.now())
        begun = replace(
            before,
            batch=batch,
            attempt=uuid4().hex,
            job=self._job,
            arrived_s=arrived_s,
            kept=self._retained(before.kept, arrived_s),
            has_results=False,
        )
        records = read().persist()  # each step would read and decode the files again
        try:
            done = self._linked(begun, records)
        finally:
            records.unpersist()
        self.directory.commit(done, before)
        return done

    def _linked(self, begun: LinkageCommit, records: DataFrame) -> LinkageCommit:
        kept_bytes = len(begun.frequency) // _BITS if begun.frequency else None
        counts = checked(records, self._names, of_all=False, kept_bytes=kept_bytes)
        rows = sum(counts.values())
        if not rows:
            return begun
        order = begun.order or order_in(frequencies_of(records), rows)
        arrived = write_blocks(
            blocks_of(records, order, rows),
            self.directory.root,
            self._name(begun, 0),
            0,
            begun.arrived_s,
        )
        links, pairs = self._compared(begun, arrived, order)
        self._write(begun, links)
        return replace(
            begun,
            frequency=tuple(order.frequency.tolist()),
            ordered=order.records,
            kept=(*self._merged(begun, order.words), arrived),
            records=begun.records + rows,
            pairs=begun.pairs + pairs,
            links=begun.links + len(links),
            has_results=len(links) > 0,
        )

    def _compared(
        self, begun: LinkageCommit, arrived: KeptBlocks, order: BitOrder
    ) -> tuple[pa.Table, int]:
        """Compare what has arrived; return the links, and the number of pairs."""
        comparison = comparison_of(self.spec, order)
        kept, spans = begun.spans, sorted_spans([*begun.spans, *arrived.spans])
        tasks = tasks_between(spans, comparison, {span.block for span in kept})
        met = {span.block for task in tasks for span in (task.one, *task.others)}
        holders = [
            each for each in (*begun.kept, arrived) if any(span.block in met for span in each.spans)
        ]
        pairs = all_pairs(spans) - all_pairs(kept)
        if not holders:
            return _NO_LINKS, pairs
        blocks = read_blocks(self.session, self.directory.root, holders)
        matches, _ = compared(blocks, tasks, comparison, lambda *_: None)
        if not len(matches):
            return _NO_LINKS, pairs
        found = self.session.createDataFrame(matches)
        return linked(found, self._names, None).toArrow(), pairs

    def _write(self, begun: LinkageCommit, links: pa.Table) -> None:
        if not len(links):
            return
        staging = self.directory.staging(begun.batch, begun.attempt)
        staging.mkdir(parents=True)
        with atomic_file(staging / "links.parquet") as file:
            pq.write_table(links, file, compression="lz4")

    def _retained(self, kept: tuple[KeptBlocks, ...], now_s: float) -> tuple[KeptBlocks, ...]:
        if self._retention_s is None:
            return kept
        return tuple(each for each in kept if now_s - each.arrived_s <= self._retention_s)

    def _merged(self, begun: LinkageCommit, words: int) -> tuple[KeptBlocks, ...]:
        """Merge the blocks of a tier that have become many, so that files and blocks stay few."""
        groups: defaultdict[tuple[int, int], list[KeptBlocks]] = defaultdict(list)
        for each in begun.kept:
            groups[each.tier, self._epoch(each)].append(each)
        merged: list[KeptBlocks] = []
        for (tier, epoch), those in sorted(groups.items()):
            if len(those) < _FAN:
                merged += those
                continue
            name = f"{self._name(begun, tier + 1)}-{epoch}"
            merged.append(merged_blocks(self.session, self.directory.root, those, name, words))
        return tuple(merged)

    def _epoch(self, kept: KeptBlocks) -> int:
        if self._retention_s is None:
            return 0
        return int(kept.arrived_s / self._retention_s * _EPOCHS)

    def _name(self, begun: LinkageCommit, tier: int) -> str:
        return f"{begun.batch}-{begun.attempt}-{tier}"


_NO_LINKS: Final = pa.table({})


def _fingerprint(spec: PrivateSpec) -> str:
    """Return a digest of what the kept records and their links depend on; filters are not of it."""
    owners = []
    for name, source in spec.owners.items():
        assert isinstance(source, FileSource)  # a job without a service has no classes
        path = str(Path(source.path).absolute())
        owners.append([name, path, source.format, sorted(source.rename.items())])
    text = json.dumps([owners, spec.bits, str(spec.threshold)])
    return blake2b(text.encode(), digest_size=16).hexdigest()
