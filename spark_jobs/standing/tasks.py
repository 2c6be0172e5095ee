"""The tasks of a batch, as functions from record batches to record batches.

A stage takes the chunks of its level, stores them, probes with them, and sends on the results;
other chunks pass through. Only reports reach the end. So the stages of a batch are a chain, with
one exchange before each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mediator.standing.model import Attribute, stream_store
from mediator.standing.probe_orders import StoreLayout
from spark_jobs.standing.chunks import REPORTS, Chunk, decode, encode, record_batch
from spark_jobs.standing.commits import Segment
from spark_jobs.standing.probing import probe
from spark_jobs.standing.reports import Report, Written
from spark_jobs.standing.result_files import ResultFile
from spark_jobs.standing.segments import StoredRows, merge_segments, read_segment, write_segment
from spark_jobs.standing.tuples import (
    FIRST_S,
    LAST_S,
    TIMES,
    check_tuples,
    code_column,
    column_of,
    key_columns,
    members_of,
    stream_rows,
    with_keys,
)
from spark_jobs.standing.work import Work

__all__ = ["execute", "read", "read_history"]

_FAN: Final = 8
"""Segments of a tier that are merged into one of the next: a row is rewritten once per tier."""

_PIECE_ROWS: Final = 2**15
"""Minimum rows of a piece of results, except the last."""


def read(work: Work, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read tuples of the feed: `stream`, `number`, `time_s` and `values`, in any order.

    Raises:
        InputUnfit: A row is not a valid tuple.
    """
    sender, report = _Sender(work), Report()
    for batch in batches:
        rows = check_tuples(pa.table(batch), work.ranks)
        is_late = pc.less(rows.column("time_s"), work.watermark_s)
        report.late += pc.sum(is_late).as_py() or 0
        rows = rows.filter(pc.invert(is_late))
        if len(rows):
            report.latest_s = max(report.latest_s, pc.max(rows.column("time_s")).as_py())
        for name in sorted(pc.unique(rows.column("stream")).to_pylist()):
            source = work.hops.inputs[name]
            own_rows = rows.filter(pc.equal(rows.column("stream"), name))
            tuples = stream_rows(name, work.ranks[name], own_rows, source.keys)
            yield record_batch(sender.send(tuples, source.stores, source.next_hops))
    report.sent = sender.sent
    yield _report_batch(report)


def read_history(work: Work, groups: Iterable[int]) -> Iterator[pa.RecordBatch]:
    """Read the stored tuples of some partition groups, of the streams that start a history."""
    sender = _Sender(work)
    for group in groups:
        for name, source in work.hops.inputs.items():
            for number, epoch in enumerate(work.epochs):
                # Each layout of a stream has all tuples of the epoch.
                layouts = [layout for layout in epoch.layouts if layout.join == stream_store(name)]
                for layout in layouts[:1]:
                    for stored in work.stored(number, layout, group):
                        rows = with_keys(merge_segments([stored]), source.keys)
                        yield record_batch(sender.send(rows, (), source.next_hops))


def execute(work: Work, level: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Execute a level."""
    groups: defaultdict[int, list[Chunk]] = defaultdict(list)
    for batch in batches:
        mine = pc.equal(batch.column("level"), level)
        yield batch.filter(pc.invert(mine))
        columns = (column.to_pylist() for column in batch.filter(mine).columns)
        for chunk in map(Chunk._make, zip(*columns, strict=True)):
            groups[chunk.group].append(chunk)
    for group in sorted(groups):
        yield from _Group(work, level, group).execute(groups[group])


class _Group:
    """A partition group at a level."""

    def __init__(self, work: Work, level: int, group: int) -> None:
        self._work = work
        self._level = level
        self._group = group
        self._sender = _Sender(work)
        self._report = Report()

    def execute(self, chunks: Iterable[Chunk]) -> Iterator[pa.RecordBatch]:
        stores: defaultdict[int, list[bytes]] = defaultdict(list)
        routes: defaultdict[tuple[int, int], list[bytes]] = defaultdict(list)
        for chunk in chunks:
            if chunk.hop < 0:
                stores[chunk.store].append(chunk.rows)
            else:
                routes[chunk.hop, chunk.route].append(chunk.rows)
        for store, chunk_rows in sorted(stores.items()):
            self._store(self._work.layouts[store], chunk_rows)
        path = self._work.staging / f"{self._level}-{self._group}.parquet"
        with ResultFile(path) as results:
            for (hop, route), chunk_rows in sorted(routes.items()):
                for result in self._probe(hop, route, chunk_rows):
                    yield record_batch(self._take(hop, result, results))
            self._report.results = results.rows
        self._report.sent = self._sender.sent
        yield _report_batch(self._report)

    def _store(self, layout: StoreLayout, chunk_rows: Sequence[bytes]) -> None:
        """Write rows as a segment, and merge older segments once there are many."""
        work = self._work
        rows = decode(chunk_rows, layout.join.relations)
        self._write(layout, rows, 0, ())
        tiers: defaultdict[int, list[Segment]] = defaultdict(list)
        for segment in work.segments(len(work.epochs) - 1, layout, self._group):
            tiers[segment.tier].append(segment)
        for tier, segments in sorted(tiers.items()):
            if len(segments) >= _FAN:
                merged = merge_segments([read_segment(work.root / at.path) for at in segments])
                self._write(layout, merged, tier + 1, tuple(at.path for at in segments))

    def _write(
        self, layout: StoreLayout, rows: pa.Table, tier: int, replaces: tuple[str, ...]
    ) -> None:
        work = self._work
        path = work.new_path(layout, self._group, tier)
        write_segment(work.root / path, rows, work.hops.stores[layout].indexed)
        number = work.layouts.index(layout)
        segment = Segment(number, self._group, path, len(rows), tier)
        newest_s = float(column_of(rows, FIRST_S).max())
        self._report.written.append(Written(segment, newest_s, replaces))

    def _probe(self, hop: int, route: int, chunk_rows: Sequence[bytes]) -> Iterator[pa.Table]:
        """Join rows with the group's stored rows; yield the results in pieces."""
        probe_hop, way = self._work.hops.hops[hop], self._work.routes[hop][route]
        rows = decode(chunk_rows, probe_hop.known)
        results, count = [], 0
        for stored in self._partners(way.layout, way.epochs, is_history=probe_hop.is_history):
            for table in probe(rows, stored, probe_hop):
                results.append(table)
                count += len(table)
                if count >= _PIECE_ROWS:
                    yield pa.concat_tables(results)
                    results, count = [], 0
        if results:
            yield pa.concat_tables(results)

    def _partners(
        self, layout: StoreLayout, epochs: Iterable[int], *, is_history: bool
    ) -> Iterator[StoredRows]:
        work, current = self._work, len(self._work.epochs) - 1
        for epoch in epochs:
            yield from work.stored(epoch, layout, self._group)
            if epoch == current and not is_history:
                yield from work.arrived(layout, self._group)

    def _take(self, hop: int, rows: pa.Table, results: ResultFile) -> list[Chunk]:
        probe_hop = self._work.hops.hops[hop]
        if probe_hop.queries:
            results.write(rows, sorted(probe_hop.order.join.relations), probe_hop.queries)
        return self._sender.send(rows, probe_hop.stores, probe_hop.next_hops)


class _Sender:
    """Encodes rows for the partition groups that they are sent to.

    Attributes:
        sent: Rows sent, by hop; a broadcast counts once per group.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self.sent = Report().sent

    def send(
        self, rows: pa.Table, stores: Iterable[StoreLayout], hops: Iterable[int]
    ) -> list[Chunk]:
        """Return rows as chunks for their stores and for their next hops."""
        chunks = [chunk for layout in stores for chunk in self._to_store(rows, layout)]
        return chunks + [chunk for hop in hops for chunk in self._to_hop(rows, hop)]

    def _to_store(self, rows: pa.Table, layout: StoreLayout) -> Iterator[Chunk]:
        target = self._work.hops.stores[layout]
        selected = self._select(rows, layout.join.relations, target.keys)
        number = self._work.layouts.index(layout)
        for group, part in self._partition(selected, layout.partition):
            yield Chunk(group, target.level, store=number, rows=encode(part))

    def _to_hop(self, rows: pa.Table, hop: int) -> Iterator[Chunk]:
        work, target = self._work, self._work.hops.hops[hop]
        carried = self._select(rows, target.known, target.carried)
        window_s = target.order.join.window_s
        for number, route in enumerate(work.routes[hop]):
            reaching = pc.less_equal(pc.subtract(carried.column(LAST_S), route.reach_s), window_s)
            sent_rows = carried.filter(reaching)
            groups = route.groups(work.parallelism)
            self.sent[hop] += len(sent_rows) * groups
            if len(sent_rows) and groups > 1:
                encoded = encode(sent_rows)
                for group in range(groups):
                    yield Chunk(group, target.level, hop=hop, route=number, rows=encoded)
            else:
                for group, part in self._partition(sent_rows, route.key):
                    yield Chunk(group, target.level, hop=hop, route=number, rows=encode(part))

    def _select(
        self, rows: pa.Table, relations: Iterable[str], keys: Sequence[Attribute]
    ) -> pa.Table:
        names = [*TIMES, *members_of(relations), *key_columns(keys)]
        return with_keys(rows, keys).select(names)

    def _partition(self, rows: pa.Table, key: Attribute | None) -> Iterator[tuple[int, pa.Table]]:
        """Partition rows by their partition group."""
        if key is None or self._work.parallelism == 1:
            if len(rows):
                yield 0, rows
            return
        groups = column_of(rows, code_column(key)) % np.uint64(self._work.parallelism)
        for group in np.unique(groups):
            yield int(group), rows.take(np.flatnonzero(groups == group))


def _report_batch(report: Report) -> pa.RecordBatch:
    return record_batch([Chunk(0, REPORTS, rows=report.to_json())])
