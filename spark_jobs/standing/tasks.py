"""What the tasks of a batch do: functions from record batches to record batches.

A stage takes the chunks of its level, stores them and probes with them, and sends on what it finds;
other chunks pass. What reaches the end are reports. So the stages of a batch are a chain, with one
exchange before each.
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
from spark_jobs.standing.chunks import REPORTS, Chunk, pack, record_batch, unpack
from spark_jobs.standing.commits import Segment
from spark_jobs.standing.probing import probe
from spark_jobs.standing.reports import Report, Written
from spark_jobs.standing.result_files import ResultFile
from spark_jobs.standing.segments import StoredRows, merged, read_segment, write_segment
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
"""So many segments of a tier are merged into one of the next: a row is rewritten once a tier."""

_PIECE: Final = 2**15
"""Rows that are found are sent on when they are as many."""


def read(work: Work, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Take tuples of the feed: `stream`, `number`, `time_s` and `values`, in any order.

    Raises:
        InputUnfit: One is none.
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
            of = work.hops.inputs[name]
            those = rows.filter(pc.equal(rows.column("stream"), name))
            tuples = stream_rows(name, work.ranks[name], those, of.keys)
            yield record_batch(sender.send(tuples, of.stores, of.then))
    report.sent = sender.sent
    yield _reported(report)


def read_history(work: Work, groups: Iterable[int]) -> Iterator[pa.RecordBatch]:
    """Take tuples that some partition groups have, of the streams that a history begins with."""
    sender = _Sender(work)
    for group in groups:
        for name, of in work.hops.inputs.items():
            for number, epoch in enumerate(work.epochs):
                # Each layout of a stream has all tuples of the epoch.
                layouts = [each for each in epoch.layouts if each.join == stream_store(name)]
                for layout in layouts[:1]:
                    for stored in work.stored(number, layout, group):
                        rows = with_keys(merged([stored]), of.keys)
                        yield record_batch(sender.send(rows, (), of.then))


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
        for each in chunks:
            if each.hop < 0:
                stores[each.store].append(each.rows)
            else:
                routes[each.hop, each.route].append(each.rows)
        for store, those in sorted(stores.items()):
            self._store(self._work.layouts[store], those)
        path = self._work.staging / f"{self._level}-{self._group}.parquet"
        with ResultFile(path) as results:
            for (hop, route), those in sorted(routes.items()):
                for found in self._probe(hop, route, those):
                    yield record_batch(self._take(hop, found, results))
            self._report.results = results.rows
        self._report.sent = self._sender.sent
        yield _reported(self._report)

    def _store(self, layout: StoreLayout, those: Sequence[bytes]) -> None:
        """Write rows as a segment; and older segments as one, if they have become many."""
        work = self._work
        rows = unpack(those, layout.join.relations)
        self._write(layout, rows, 0, ())
        tiers: defaultdict[int, list[Segment]] = defaultdict(list)
        for each in work.segments(len(work.epochs) - 1, layout, self._group):
            tiers[each.tier].append(each)
        for tier, those_of in sorted(tiers.items()):
            if len(those_of) >= _FAN:
                whole = merged([read_segment(work.root / each.path) for each in those_of])
                self._write(layout, whole, tier + 1, tuple(each.path for each in those_of))

    def _write(
        self, layout: StoreLayout, rows: pa.Table, tier: int, replaces: tuple[str, ...]
    ) -> None:
        work = self._work
        path = work.new_path(layout, self._group, tier)
        write_segment(work.root / path, rows, work.hops.stores[layout].looked_up)
        number = work.layouts.index(layout)
        segment = Segment(number, self._group, path, len(rows), tier)
        newest_s = float(column_of(rows, FIRST_S).max())
        self._report.written.append(Written(segment, newest_s, replaces))

    def _probe(self, hop: int, route: int, those: Sequence[bytes]) -> Iterator[pa.Table]:
        """Find what rows make together with what the group has, in pieces of some size."""
        of, way = self._work.hops.hops[hop], self._work.routes[hop][route]
        rows = unpack(those, of.known)
        found, count = [], 0
        for stored in self._partners(way.layout, way.epochs, is_history=of.is_history):
            for each in probe(rows, stored, of):
                found.append(each)
                count += len(each)
                if count >= _PIECE:
                    yield pa.concat_tables(found)
                    found, count = [], 0
        if found:
            yield pa.concat_tables(found)

    def _partners(
        self, layout: StoreLayout, epochs: Iterable[int], *, is_history: bool
    ) -> Iterator[StoredRows]:
        work, present = self._work, len(self._work.epochs) - 1
        for epoch in epochs:
            yield from work.stored(epoch, layout, self._group)
            if epoch == present and not is_history:
                yield from work.arrived(layout, self._group)

    def _take(self, hop: int, found: pa.Table, results: ResultFile) -> list[Chunk]:
        of = self._work.hops.hops[hop]
        if of.queries:
            results.write(found, sorted(of.order.join.relations), of.queries)
        return self._sender.send(found, of.stores, of.then)


class _Sender:
    """Packs rows for the partition groups that they are sent to.

    Attributes:
        sent: By hop, the rows that were sent; a broadcast counts as many.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self.sent = Report().sent

    def send(
        self, rows: pa.Table, stores: Iterable[StoreLayout], hops: Iterable[int]
    ) -> list[Chunk]:
        """Return rows as chunks for the stores that keep them, and for the hops that they take."""
        chunks = [each for layout in stores for each in self._to_store(rows, layout)]
        return chunks + [each for hop in hops for each in self._to_hop(rows, hop)]

    def _to_store(self, rows: pa.Table, layout: StoreLayout) -> Iterator[Chunk]:
        of = self._work.hops.stores[layout]
        kept = self._selected(rows, layout.join.relations, of.keys)
        number = self._work.layouts.index(layout)
        for group, those in self._divided(kept, layout.partition):
            yield Chunk(group, of.level, store=number, rows=pack(those))

    def _to_hop(self, rows: pa.Table, hop: int) -> Iterator[Chunk]:
        work, of = self._work, self._work.hops.hops[hop]
        carried = self._selected(rows, of.known, of.carried)
        window_s = of.order.join.window_s
        for number, route in enumerate(work.routes[hop]):
            reaching = pc.less_equal(pc.subtract(carried.column(LAST_S), route.reach_s), window_s)
            those = carried.filter(reaching)
            groups = route.groups(work.parallelism)
            self.sent[hop] += len(those) * groups
            if len(those) and groups > 1:
                packed = pack(those)
                for group in range(groups):
                    yield Chunk(group, of.level, hop=hop, route=number, rows=packed)
            else:
                for group, some in self._divided(those, route.by):
                    yield Chunk(group, of.level, hop=hop, route=number, rows=pack(some))

    def _selected(
        self, rows: pa.Table, relations: Iterable[str], keys: Sequence[Attribute]
    ) -> pa.Table:
        names = [*TIMES, *members_of(relations), *key_columns(keys)]
        return with_keys(rows, keys).select(names)

    def _divided(self, rows: pa.Table, by: Attribute | None) -> Iterator[tuple[int, pa.Table]]:
        """Divide rows by their partition group."""
        if by is None or self._work.parallelism == 1:
            if len(rows):
                yield 0, rows
            return
        groups = column_of(rows, code_column(by)) % np.uint64(self._work.parallelism)
        for group in np.unique(groups):
            yield int(group), rows.take(np.flatnonzero(groups == group))


def _reported(report: Report) -> pa.RecordBatch:
    return record_batch([Chunk(0, REPORTS, rows=report.to_json())])
