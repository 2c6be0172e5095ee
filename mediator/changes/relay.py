"""The relay of one system's logs: it reads what writes left there, and brings it to the feeds."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

from mediator.base.lease import Lease
from mediator.changes.cursors import Cursors
from mediator.changes.feed import Brought, Feed, Source
from mediator.changes.routes import SystemRoutes
from mediator.model.change import Change
from mediator.schema.tree import SCRATCH_DATABASE
from mediator.stores.port import ChangeLog, Fragment, FragmentOf, LogEntry

__all__ = ["KEEP_S", "LogRelay", "Round", "Withholding"]

KEEP_S: Final = 600.0
"""Seconds for which logs keep what is relayed: a feed may fall back to an older state of it."""

_PACE_US: Final = 200_000
_BATCH: Final = 1_000
"""Entries that are read of a log at once, and that one script appends: its server waits for it."""

_HORIZONS: Final = 64

_T = TypeVar("_T")


@runtime_checkable
class Withholding(Protocol):
    """A log that tells a change only when none can still appear before it (`ChangeLog.changes`).

    So what it tells need not be all that was acknowledged.
    """

    async def horizon(self) -> tuple[int, int]:
        """Return (reached, awaited), numbers of writes.

        All that was acknowledged before this call has a number below `awaited`; a read that begins
        after this call tells all numbers below `reached`.
        """


@dataclass(frozen=True, slots=True)
class Round:
    """What one look at the logs brought.

    Attributes:
        read: Entries that were read.
        appended: Changes that were new to the feed.
        drained: Whether the logs were read to their ends.
        missing: Logs that no longer have what comes after their cursor; then nothing was brought
            yet.
    """

    read: int
    appended: int
    drained: bool
    missing: tuple[str, ...] = ()


class LogRelay:
    """Relays for as long as its lease is held.

    Every method raises `StoreError` and `Unavailable` if the store or the feed does not answer,
    `LeaseLost` and `FeedWentBack`. After any of them `forget` is to be called.

    Args:
        store: The system.
        feed: The feeds.
        routes: What the routing model says of the system.
        lease: The lease of this relay.
        pace_us: Microseconds after which feeds without changes hear that there are none: what a
            round costs is to go by what it brings.
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
        self._withholding = store if isinstance(store, Withholding) else None
        self._feed = feed
        self._routes = routes
        self._lease = lease
        self._pace_us = pace_us
        self._logs = tuple(store.logs())
        self._cursors = Cursors(feed, routes.system, self._logs)
        self._horizons: deque[tuple[int, int]] = deque()
        self._due_tick = 0
        self._looked_at = 0.0
        self._told_at: dict[str, float] = {}
        self._untold: set[str] = set()
        self._trimmable: dict[str, str] = {}

    def forget(self, *, reached: bool = False) -> None:
        """Believe nothing of what the feed has; and nothing of what it had (`reached`)."""
        self._cursors.forget(reached=reached)
        self._horizons.clear()
        self._due_tick = 0

    async def round(self) -> Round:
        """Bring what there is, up to a batch of each log; tell the feeds if that was all.

        It is told with a tick of before the reading, so that what is acknowledged meanwhile is
        not said to be there.
        """
        databases = self._routes.databases()
        loaded = await self._cursors.load(databases)
        missing = await self._missing() if loaded else ()
        if missing:
            return Round(0, 0, False, missing)  # told before anything comes after the gap
        await self._look_out()
        found = await self._read_all()
        drained = all(len(entries) < _BATCH for entries in found.values())
        before = {log: self._cursors.least(log) for log in self._logs}
        appended = await self._bring(databases, found, self._due_tick if drained else 0)
        self._note_trimmable(before)
        return Round(sum(map(len, found.values())), appended, drained)

    async def trim(self) -> int:
        """Remove what has long been relayed from the logs; return how many entries that was.

        What was relayed last stays, so that a log that goes on right after its cursor can be told
        from one in which something is missing.
        """
        trimmable = self._trimmable.items()
        return sum(await _all(self._store.trim(log, upto, KEEP_S) for log, upto in trimmable))

    async def _missing(self) -> tuple[str, ...]:
        missing = []
        for log in self._logs:
            least = self._cursors.least(log)
            oldest = await self._store.oldest(log)
            if least and oldest is not None and oldest > least:
                missing.append(log)
        return tuple(missing)

    async def _look_out(self) -> None:
        """Find the tick before which all that was acknowledged is told by a read from now on."""
        self._looked_at = asyncio.get_running_loop().time()
        tick = await self._feed.tick()
        if self._withholding is None:
            self._due_tick = tick
            return
        reached, awaited = await self._withholding.horizon()
        if len(self._horizons) < _HORIZONS:
            self._horizons.append((tick, awaited))
        while self._horizons and self._horizons[0][1] <= reached:
            self._due_tick = self._horizons.popleft()[0]

    async def _bring(
        self, databases: Sequence[str], found: Mapping[str, Sequence[LogEntry]], until_tick: int
    ) -> int:
        """Bring each database what was found, or that there is nothing if it is time to say so.

        Args:
            databases: Those that have a part in the system.
            found: By log.
            until_tick: Up to when that is all; 0 if it is not.
        """
        own = _by_database(found)
        await self._begin(own)
        upto = {log: some[-1].position for log, some in found.items() if some}
        self._untold |= own.keys()
        wanted = self._untold if until_tick else own.keys()
        appended = 0
        for database in sorted({*databases, *own}):
            if database in wanted or self._is_due(database):
                appended += await self._append(database, own.get(database, {}), upto, until_tick)
        for log, position in upto.items():
            self._cursors.read(log, position)
        return appended

    async def _begin(self, own: Mapping[str, Mapping[str, object]]) -> None:
        """Give databases that are new their cursors, before those of any other move on."""
        for database in sorted(own):
            for log in own[database]:
                if database not in self._cursors.of(log):
                    await self._cursors.begin(log, database, self._cursors.start(log))

    async def _append(
        self,
        database: str,
        changes: Mapping[str, Sequence[tuple[str, Change]]],
        upto: Mapping[str, str],
        until_tick: int,
    ) -> int:
        """Append a database's changes (by log), and move its cursors to where the logs were read.

        Between its cursor and the place from which a log was read there is nothing of it, or the
        cursor would be there. Up to when that is all goes with the last parcel, in the step that
        appends it: so it never says more than is there.
        """
        brought = []
        for log, cursor in self._cursors.of_database(database).items():
            reached = max(cursor, upto.get(log) or self._cursors.start(log))
            source = Source(self._routes.system, log)
            brought.append(Brought(source, cursor, reached, changes.get(log, ())))
        appended = 0
        for parcel, is_last in _parcels(brought):
            until = until_tick if until_tick and is_last else None
            appended += await self._feed.append(database, parcel, self._lease, until)
        for each in brought:
            self._cursors.move(each.source.log, database, each.upto)
        self._told_at[database] = self._looked_at
        if until_tick:
            self._untold.discard(database)
        else:
            self._untold.add(database)
        return appended

    def _note_trimmable(self, before: Mapping[str, str]) -> None:
        """Let go of what every cursor has left behind: the entry at which one stands is to stay."""
        for log, least in before.items():
            if "" < least < self._cursors.least(log):
                self._trimmable[log] = least

    def _is_due(self, database: str) -> bool:
        """Whether it is time again to say that there is nothing."""
        passed_s = self._looked_at - self._told_at.get(database, float("-inf"))
        return passed_s * 1_000_000 >= self._pace_us

    async def _read_all(self) -> dict[str, list[LogEntry]]:
        """Read each log, unless no database has a part in the system."""
        logs = [log for log in self._logs if self._cursors.of(log)]
        found = await _all(self._read(log, self._cursors.start(log)) for log in logs)
        return dict(zip(logs, found, strict=True))

    async def _read(self, log: str, after: str) -> list[LogEntry]:
        unknown: set[str] = set()
        find = self._finder(unknown)
        entries = await self._store.changes(log, after or None, _BATCH, find)
        if unknown - {SCRATCH_DATABASE}:
            # Their classes are gone; or were made by another replica a moment ago.
            await self._routes.refresh()
            find = self._finder(unknown)
            entries = await self._store.changes(log, after or None, _BATCH, find)
        return entries

    def _finder(self, unknown: set[str]) -> FragmentOf:
        """Return what finds fragments for one reading, and notes databases of those it lacks."""

        @cache  # a log has few classes, and many entries of each
        def find(database: str, class_name: str) -> Fragment | None:
            fragment = self._routes.fragment_of(database, class_name)
            if fragment is None:
                unknown.add(database)
            return fragment

        return find


async def _all(tasks: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Await all of them, whatever becomes of one: none is to go on beside the next round."""
    results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


def _parcels(brought: Sequence[Brought]) -> Iterator[tuple[Sequence[Brought], bool]]:
    """Yield what is appended at once, and whether it is the last: all of it, unless it is much."""
    parcel: list[Brought] = []
    size = 0
    for each in brought:
        if parcel and size + len(each.entries) > _BATCH:
            yield parcel, False
            parcel, size = [], 0
        parcel.append(each)
        size += len(each.entries)
    if parcel:
        yield parcel, True


def _by_database(
    found: Mapping[str, Sequence[LogEntry]],
) -> dict[str, dict[str, list[tuple[str, Change]]]]:
    """Return the changes of each database, by log, with their places."""
    databases: dict[str, dict[str, list[tuple[str, Change]]]] = {}
    for log, entries in found.items():
        for entry in entries:
            if entry.change is not None:
                own = databases.setdefault(entry.change.database_id, {})
                own.setdefault(log, []).append((entry.position, entry.change))
    return databases
