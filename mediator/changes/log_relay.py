"""The relay of one system's logs: it appends their changes to the feeds."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Protocol, runtime_checkable

from mediator.base.concurrency import concurrently
from mediator.base.lease import Lease
from mediator.changes.feed import Feed, LogBatch, Source
from mediator.changes.log_cursors import LogCursors
from mediator.changes.routes import SystemRoutes
from mediator.model.change import Change
from mediator.schema.tree import SCRATCH_DATABASE
from mediator.stores.port import ChangeLog, Fragment, FragmentOf, LogEntry

__all__ = ["KEEP_S", "HorizonLog", "LogRelay", "RelayResult"]

KEEP_S: Final = 600.0
"""Seconds for which logs keep what is relayed: a feed may go back to an older state."""

_PACE_US: Final = 200_000
_BATCH: Final = 1_000
"""Entries read of a log at once, and appended by one script, which blocks its server."""

_HORIZONS: Final = 64


@runtime_checkable
class HorizonLog(Protocol):
    """A log that shows a change only when none can still appear before it (`ChangeLog.changes`).

    So what it shows need not be all that was acknowledged.
    """

    async def horizon(self) -> tuple[int, int]:
        """Return (reached, awaited), numbers of writes.

        Every write acknowledged before this call has a number below `awaited`; a read that starts
        after this call returns all numbers below `reached`.
        """


@dataclass(frozen=True, slots=True)
class RelayResult:
    """The result of one relay of a batch of each log.

    Attributes:
        read: Entries that were read.
        appended: Changes that were new to the feed.
        drained: Whether the logs were read to their ends.
        missing: Logs that no longer have the entries after their cursors; then nothing was
            appended.
    """

    read: int
    appended: int
    drained: bool
    missing: tuple[str, ...] = ()


class LogRelay:
    """Relays for as long as its lease is held.

    Every method raises `StoreError` and `Unavailable` if the store or the feed does not answer,
    `LeaseLost` and `FeedRolledBack`. After any of them `forget` is to be called.

    Progress is published to feeds without changes after `pace_us` microseconds only: it costs as
    much as changes do.
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
        """Forget what the feed has; and what it had (`reached`)."""
        self._cursors.forget(reached=reached)
        self._horizons.clear()
        self._due_tick = 0

    async def relay(self) -> RelayResult:
        """Append up to a batch of each log; publish progress if that was all.

        The published tick is of before the reading, so it does not include what is acknowledged
        meanwhile.
        """
        databases = self._routes.databases()
        loaded = await self._cursors.load(databases)
        missing = await self._missing() if loaded else ()
        if missing:
            return RelayResult(0, 0, False, missing)  # the gap is handled before later entries
        await self._read_horizon()
        entries = await self._read_all()
        drained = all(len(each) < _BATCH for each in entries.values())
        before = {log: self._cursors.least(log) for log in self._logs}
        appended = await self._append_all(databases, entries, self._due_tick if drained else 0)
        self._note_trimmable(before)
        return RelayResult(sum(map(len, entries.values())), appended, drained)

    async def trim(self) -> int:
        """Remove entries that were relayed long ago; return how many.

        The last one relayed stays: so a log that goes on right after its cursor differs from one in
        which entries are missing.
        """
        trimmable = self._trimmable.items()
        return sum(
            await concurrently(self._store.trim(log, upto, KEEP_S) for log, upto in trimmable)
        )

    async def _missing(self) -> tuple[str, ...]:
        missing = []
        for log in self._logs:
            least = self._cursors.least(log)
            oldest = await self._store.oldest(log)
            if least and oldest is not None and oldest > least:
                missing.append(log)
        return tuple(missing)

    async def _read_horizon(self) -> None:
        """Find the tick before which a read from now on returns every acknowledged change."""
        self._read_at = asyncio.get_running_loop().time()
        tick = await self._feed.tick()
        if self._horizon_log is None:
            self._due_tick = tick
            return
        reached, awaited = await self._horizon_log.horizon()
        if len(self._horizons) < _HORIZONS:
            self._horizons.append((tick, awaited))
        while self._horizons and self._horizons[0][1] <= reached:
            self._due_tick = self._horizons.popleft()[0]

    async def _append_all(
        self, databases: Sequence[str], entries: Mapping[str, Sequence[LogEntry]], until_tick: int
    ) -> int:
        """Append to each database its changes, and publish progress where that is due.

        The entries, by log, are complete up to `until_tick`; 0: they are not.
        """
        changes = _by_database(entries)
        await self._create_cursors(changes)
        upto = {log: batch[-1].position for log, batch in entries.items() if batch}
        self._unpublished |= changes.keys()
        due = self._unpublished if until_tick else changes.keys()
        appended = 0
        for database in sorted({*databases, *changes}):
            if database in due or self._is_due(database):
                own = changes.get(database, {})
                appended += await self._append(database, own, upto, until_tick)
        for log, position in upto.items():
            self._cursors.read(log, position)
        return appended

    async def _create_cursors(self, changes: Mapping[str, Mapping[str, object]]) -> None:
        """Create the cursors of new databases, before those of any other move on."""
        for database in sorted(changes):
            for log in changes[database]:
                if database not in self._cursors.of(log):
                    await self._cursors.create(log, database, self._cursors.start(log))

    async def _append(
        self,
        database: str,
        changes: Mapping[str, Sequence[tuple[str, Change]]],
        upto: Mapping[str, str],
        until_tick: int,
    ) -> int:
        """Append a database's changes (by log), and move its cursors to where the logs were read.

        Between its cursor and the position from which a log was read it has no changes, or the
        cursor would be there. `until_tick` goes with the last batch, in the step that appends it:
        so it never promises more than is there.
        """
        batches = []
        for log, cursor in self._cursors.of_database(database).items():
            reached = max(cursor, upto.get(log) or self._cursors.start(log))
            source = Source(self._routes.system, log)
            batches.append(LogBatch(source, cursor, reached, changes.get(log, ())))
        appended = 0
        for request, is_last in _requests(batches):
            until = until_tick if until_tick and is_last else None
            appended += await self._feed.append(database, request, self._lease, until)
        for each in batches:
            self._cursors.move(each.source.log, database, each.upto)
        self._published_at[database] = self._read_at
        if until_tick:
            self._unpublished.discard(database)
        else:
            self._unpublished.add(database)
        return appended

    def _note_trimmable(self, before: Mapping[str, str]) -> None:
        """Let entries before every cursor be trimmed; the entry at a cursor stays."""
        for log, least in before.items():
            if "" < least < self._cursors.least(log):
                self._trimmable[log] = least

    def _is_due(self, database: str) -> bool:
        """Whether progress is due though there are no changes."""
        elapsed_s = self._read_at - self._published_at.get(database, float("-inf"))
        return elapsed_s * 1_000_000 >= self._pace_us

    async def _read_all(self) -> dict[str, list[LogEntry]]:
        """Read each log, unless no database has a fragment on the system."""
        logs = [log for log in self._logs if self._cursors.of(log)]
        batches = await concurrently(self._read(log, self._cursors.start(log)) for log in logs)
        return dict(zip(logs, batches, strict=True))

    async def _read(self, log: str, after: str) -> list[LogEntry]:
        unknown: set[str] = set()
        find = self._finder(unknown)
        entries = await self._store.changes(log, after or None, _BATCH, find)
        if unknown - {SCRATCH_DATABASE}:
            # Their classes were dropped; or created by another replica a moment ago.
            await self._routes.refresh()
            find = self._finder(unknown)
            entries = await self._store.changes(log, after or None, _BATCH, find)
        return entries

    def _finder(self, unknown: set[str]) -> FragmentOf:
        """Return the lookup of fragments for one read; it adds databases it lacks to `unknown`."""

        @cache  # a log has few classes, and many entries of each
        def find(database: str, class_name: str) -> Fragment | None:
            fragment = self._routes.fragment_of(database, class_name)
            if fragment is None:
                unknown.add(database)
            return fragment

        return find


def _requests(batches: Sequence[LogBatch]) -> Iterator[tuple[Sequence[LogBatch], bool]]:
    """Yield the batches that are appended at once, and whether they are the last."""
    request: list[LogBatch] = []
    size = 0
    for batch in batches:
        if request and size + len(batch.entries) > _BATCH:
            yield request, False
            request, size = [], 0
        request.append(batch)
        size += len(batch.entries)
    if request:
        yield request, True


def _by_database(
    entries: Mapping[str, Sequence[LogEntry]],
) -> dict[str, dict[str, list[tuple[str, Change]]]]:
    """Return the changes of each database, by log, with their positions."""
    databases: dict[str, dict[str, list[tuple[str, Change]]]] = {}
    for log, batch in entries.items():
        for entry in batch:
            if entry.change is not None:
                own = databases.setdefault(entry.change.database_id, {})
                own.setdefault(log, []).append((entry.position, entry.change))
    return databases
