"""The relay of one system's logs: it appends their changes to the feeds."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Protocol, runtime_checkable

from mediator.base.batches import batches_by_size
from mediator.base.concurrency import concurrently
from mediator.base.lease import Lease
from mediator.changes.feed import APPENDED_AT_ONCE, APPENDED_BYTES, Feed, LogBatch, LogSource
from mediator.changes.log_cursors import LogCursors
from mediator.changes.routes import SystemRoutes
from mediator.schema.tree import SCRATCH_DATABASE
from mediator.stores.port import ChangeLog, Fragment, FragmentOf, LogEntry, LogPage

__all__ = ["KEEP_S", "HorizonLog", "LogRelay", "RelayResult"]

KEEP_S: Final = 600.0
"""Seconds for which logs keep relayed entries: a feed may roll back to an older state."""

_PACE_US: Final = 200_000
_BATCH_ENTRIES: Final = 1_000
"""Entries per read of a log, fewer if they are large."""

_MAX_HORIZONS: Final = 64


@runtime_checkable
class HorizonLog(Protocol):
    """A log that shows a change only once none can appear before it (`ChangeLog.changes`).

    It may therefore not show all acknowledged changes yet.
    """

    async def horizon(self) -> tuple[int, int]:
        """Return (reached, awaited), numbers of writes.

        Every write acknowledged before this call has a number below `awaited`; a read that starts
        after this call returns all numbers below `reached`.
        """


@dataclass(frozen=True, slots=True)
class RelayResult:
    """How many entries were read from all logs, and how many changes were new to the feed.

    `drained`: all logs were read to their ends. `missing`: logs that no longer have the entries
    after their cursors; nothing was appended then.
    """

    read: int
    appended: int
    drained: bool
    missing: tuple[str, ...] = ()


class LogRelay:
    """Relays while its lease is held.

    Every method raises `StoreError`, `Unavailable` (the store or the feed does not respond),
    `LeaseLost` and `FeedRolledBack`. Call `forget` after any of these errors.

    Feeds without changes get progress only every `pace_us` microseconds: it costs as much as
    changes.
    """

    def __init__(
        self,
        store: ChangeLog,
        feed: Feed,
        routes: SystemRoutes,
        lease: Lease,
        pace_us: int = _PACE_US,
    ) -> None:
        self._store = store
        self._horizon_log = store if isinstance(store, HorizonLog) else None
        self._feed = feed
        self._routes = routes
        self._lease = lease
        self._pace_us = pace_us
        self._logs = tuple(store.logs())
        self._cursors = LogCursors(feed, routes.system, self._logs)
        self._horizons: deque[tuple[int, int]] = deque()
        self._due_tick = 0
        self._read_at = 0.0
        self._published_at: dict[str, float] = {}
        self._unpublished: set[str] = set()
        self._trimmable: dict[str, str] = {}

    def forget(self, *, reached: bool = False) -> None:
        """Forget the feed's cursors; `reached`: also the positions that it had reached."""
        self._cursors.forget(reached=reached)
        self._horizons.clear()
        self._due_tick = 0

    async def relay(self) -> RelayResult:
        """Append up to a batch of each log; publish progress if the logs are drained."""
        databases = self._routes.databases()
        loaded = await self._cursors.load(databases)
        missing = await self._missing() if loaded else ()
        if missing:
            return RelayResult(0, 0, False, missing)  # the gap is handled before later entries
        # Before the entries: the published tick excludes changes acknowledged during the read.
        await self._read_horizon()
        pages = await self._read_all()
        entries = {log: page.entries for log, page in pages.items()}
        drained = all(page.is_last for page in pages.values())
        lowest_before = {log: self._cursors.lowest(log) for log in self._logs}
        appended = await self._append_all(databases, entries, self._due_tick if drained else 0)
        self._note_trimmable(lowest_before)
        return RelayResult(sum(map(len, entries.values())), appended, drained)

    async def trim(self) -> int:
        """Remove entries that were relayed long ago; return how many."""
        trimmable = self._trimmable.items()
        return sum(
            await concurrently(self._store.trim(log, upto, KEEP_S) for log, upto in trimmable)
        )

    async def _missing(self) -> tuple[str, ...]:
        missing = []
        for log in self._logs:
            lowest = self._cursors.lowest(log)
            oldest = await self._store.oldest(log)
            if lowest and oldest is not None and oldest > lowest:
                missing.append(log)
        return tuple(missing)

    async def _read_horizon(self) -> None:
        """Find the tick before which a read from now on returns all acknowledged changes."""
        self._read_at = asyncio.get_running_loop().time()
        tick = await self._feed.tick()
        if self._horizon_log is None:
            self._due_tick = tick
            return
        reached, awaited = await self._horizon_log.horizon()
        if len(self._horizons) < _MAX_HORIZONS:
            self._horizons.append((tick, awaited))
        # A tick is due once the log shows all writes acknowledged before it.
        while self._horizons and self._horizons[0][1] <= reached:
            self._due_tick = self._horizons.popleft()[0]

    async def _append_all(
        self, databases: Sequence[str], entries: Mapping[str, Sequence[LogEntry]], until_tick: int
    ) -> int:
        """Append each database's changes to its feed, and publish progress where it is due.

        The entries, by log, are complete up to `until_tick`; 0: they are incomplete.
        """
        changes = _by_database(entries)
        # Before any other cursor moves: a relay that takes over reads from the lowest.
        await self._create_cursors(changes)
        upto = {log: batch[-1].position for log, batch in entries.items() if batch}
        self._unpublished |= changes.keys()
        due = self._unpublished if until_tick else changes.keys()
        appended = 0
        for database in sorted({*databases, *changes}):
            if database in due or self._is_due(database):
                logs = changes.get(database, {})
                appended += await self._append(database, logs, upto, until_tick)
        for log, position in upto.items():
            self._cursors.read(log, position)
        return appended

    async def _create_cursors(self, changes: Mapping[str, Mapping[str, object]]) -> None:
        """Create the cursors of new databases, at the position from which the log was read."""
        for database in sorted(changes):
            for log in changes[database]:
                if database not in self._cursors.of(log):
                    await self._cursors.create(log, database, self._cursors.start(log))

    async def _append(
        self,
        database: str,
        changes: Mapping[str, Sequence[LogEntry]],
        upto: Mapping[str, str],
        until_tick: int,
    ) -> int:
        """Append a database's changes (by log); move its cursors to where the logs were read."""
        reads = []
        for log, cursor in self._cursors.of_database(database).items():
            # The database has no changes between its cursor and the start of the read.
            reached = max(cursor, upto.get(log) or self._cursors.start(log))
            source = LogSource(self._routes.system, log)
            reads.append(LogRead(source, cursor, reached, changes.get(log, ())))
        appended = 0
        for request, is_last in requests_of(reads):
            # Only with the last request: progress never promises more than the feed has.
            until = until_tick if until_tick and is_last else None
            appended += await self._feed.append(database, request, self._lease, until)
        for read in reads:
            self._cursors.move(read.source.log, database, read.upto)
        self._published_at[database] = self._read_at
        if until_tick:
            self._unpublished.discard(database)
        else:
            self._unpublished.add(database)
        return appended

    def _note_trimmable(self, lowest_before: Mapping[str, str]) -> None:
        for log, lowest in lowest_before.items():
            # The entry at the cursor stays: its absence would look like a gap.
            if "" < lowest < self._cursors.lowest(log):
                self._trimmable[log] = lowest

    def _is_due(self, database: str) -> bool:
        elapsed_s = self._read_at - self._published_at.get(database, float("-inf"))
        return elapsed_s * 1_000_000 >= self._pace_us

    async def _read_all(self) -> dict[str, LogPage]:
        """Read each log, unless no database has a fragment on the system."""
        logs = [log for log in self._logs if self._cursors.of(log)]
        pages = await concurrently(self._read(log, self._cursors.start(log)) for log in logs)
        return dict(zip(logs, pages, strict=True))

    async def _read(self, log: str, after: str) -> LogPage:
        unknown: set[str] = set()
        find = self._finder(unknown)
        page = await self._store.changes(log, after or None, _BATCH_ENTRIES, find)
        if unknown - {SCRATCH_DATABASE}:
            # Their classes were dropped, or another replica created them a moment ago.
            await self._routes.refresh()
            find = self._finder(unknown)
            page = await self._store.changes(log, after or None, _BATCH_ENTRIES, find)
        return page

    def _finder(self, unknown: set[str]) -> FragmentOf:
        """Return a lookup of fragments for one read; it adds missing databases to `unknown`."""

        @cache  # a log has few classes and many entries of each
        def find(database: str, class_name: str) -> Fragment | None:
            fragment = self._routes.fragment_of(database, class_name)
            if fragment is None:
                unknown.add(database)
            return fragment

        return find


def _by_database(
    entries: Mapping[str, Sequence[LogEntry]],
) -> dict[str, dict[str, list[LogEntry]]]:
    databases: dict[str, dict[str, list[LogEntry]]] = {}
    for log, page in entries.items():
        for entry in page:
            if entry.change is not None:
                logs = databases.setdefault(entry.change.database_id, {})
                logs.setdefault(log, []).append(entry)
    return databases


@dataclass(frozen=True, slots=True)
class LogRead:
    """A read of a log for one database: the entries from `after`, a cursor, to `upto`."""

    source: LogSource
    after: str
    upto: str
    entries: Sequence[LogEntry]


def requests_of(logs: Iterable[LogRead]) -> Iterator[tuple[Sequence[LogBatch], bool]]:
    """Group reads into requests; also yield whether a request is the last.

    A log can be divided anywhere: each request moves the cursor only over the entries that it
    appends. If a later request fails, the feed has a prefix of the log, up to its cursor.
    """
    request: list[LogBatch] = []
    count = total = 0
    for log in logs:
        for batch, size in _batches(log):
            entries = len(batch.entries)
            fits = count + entries <= APPENDED_AT_ONCE and total + size <= APPENDED_BYTES
            if request and not fits:
                yield request, False
                request, count, total = [], 0, 0
            request.append(batch)
            count, total = count + entries, total + size
    if request:
        yield request, True


def _batches(log: LogRead) -> Iterator[tuple[LogBatch, int]]:
    """Divide a read into batches, at least one; also yield their sizes in bytes."""
    divided = batches_by_size(log.entries, _size_of, APPENDED_AT_ONCE, APPENDED_BYTES)
    after, batches = log.after, [*divided] or [[]]
    for number, entries in enumerate(batches, 1):
        upto = log.upto if number == len(batches) else entries[-1].position
        changes = [(entry.position, entry.change) for entry in entries if entry.change is not None]
        yield LogBatch(log.source, after, upto, changes), sum(map(_size_of, entries))
        after = upto


def _size_of(entry: LogEntry) -> int:
    return entry.size
