"""The relay of one system's logs: it reads what writes left there, and brings it to the feeds."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

from mediator.changes.cursors import Cursors
from mediator.changes.feed import Brought, Feed, Source
from mediator.changes.model import Change
from mediator.changes.routes import SystemRoutes
from mediator.coordination.leases import Lease
from mediator.schema.tree import SCRATCH_DATABASE
from mediator.stores.port import ChangeLog, Fragment, Logged

__all__ = ["KEEP_S", "LogRelay", "Pace", "Round", "Withholding"]

KEEP_S: Final = 600.0
"""Seconds for which logs keep what is relayed: a feed may fall back to an older state of it."""

_BATCH: Final = 1_000
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


@dataclass(frozen=True, slots=True)
class Pace:
    """How often feeds without changes hear of it; what a round costs is to go by what it brings.

    Attributes:
        publish_us: Microseconds after which they are told that there are none.
        bring_up_us: Microseconds after which their cursors are moved.
    """

    publish_us: int = 200_000
    bring_up_us: int = 1_000_000


class LogRelay:
    """Relays for as long as its lease is held.

    Every method raises `StoreError` and `Unavailable` if the store or the feed does not answer,
    `LeaseLost` and `FeedWentBack`. After any of them `forget` is to be called.

    Args:
        store: The system.
        feed: The feeds.
        routes: What the routing model says of the system.
        lease: The lease of this relay.
        pace: How often feeds without changes hear of it.
    """

    def __init__(
        self,
        store: ChangeLog,
        feed: Feed,
        routes: SystemRoutes,
        lease: Lease,
        pace: Pace | None = None,
    ) -> None:
        self._store = store
        self._feed = feed
        self._routes = routes
        self._lease = lease
        self._pace = pace or Pace()
        self._logs = tuple(store.logs())
        self._cursors = Cursors(feed, routes.system, self._logs)
        self._horizons: deque[tuple[int, int]] = deque()
        self._due_us = 0
        self._now_us = 0
        self._brought_up_us = 0
        self._published_us: dict[str, int] = {}
        self._appended: set[str] = set()
        self._trimmable: dict[str, str] = {}

    def forget(self, *, reached: bool = False) -> None:
        """Believe nothing of what the feed has; and nothing of what it had (`reached`)."""
        self._cursors.forget(reached=reached)
        self._horizons.clear()
        self._due_us = 0

    async def round(self) -> Round:
        """Bring what there is, up to a batch of each log; tell the feeds if that was all."""
        loaded = await self._cursors.load(self._routes.databases())
        missing = await self._missing() if loaded else ()
        if missing:
            return Round(0, 0, False, missing)  # told before anything comes after the gap
        await self._look_out()
        before = {log: self._cursors.least(log) for log in self._logs}
        turns = await _all(self._bring(log) for log in self._logs)
        if self._is_due(self._brought_up_us, self._pace.bring_up_us):
            await self._bring_up()
        self._note_trimmable(before)
        drained = all(read < _BATCH for read, _ in turns)
        if drained and self._due_us:
            await self._publish(self._due_us)
        read, appended = sum(turn[0] for turn in turns), sum(turn[1] for turn in turns)
        return Round(read, appended, drained, missing)

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
        """Find the time before which all that was acknowledged is told by a read from now on."""
        now_us = self._now_us = await self._feed.now_us()
        if not isinstance(self._store, Withholding):
            self._due_us = now_us
            return
        reached, awaited = await self._store.horizon()
        if len(self._horizons) < _HORIZONS:
            self._horizons.append((now_us, awaited))
        while self._horizons and self._horizons[0][1] <= reached:
            self._due_us = self._horizons.popleft()[0]

    async def _bring(self, log: str) -> tuple[int, int]:
        if not self._cursors.of(log):
            return 0, 0  # no database has a part in the system
        after = self._cursors.start(log)
        entries = await self._read(log, after)
        if not entries:
            return 0, 0
        source, upto = Source(self._routes.system, log), entries[-1].position
        own = _by_database(entries)
        held = self._cursors.of(log)
        for database in sorted(own.keys() - held.keys()):
            await self._cursors.begin(log, database, after)
        appended = 0
        for database, changes in sorted(own.items()):
            brought = Brought(source, held[database], upto, changes)
            appended += await self._feed.append(database, brought, self._lease)
            self._cursors.move(log, database, upto)
        self._cursors.read(log, upto)
        self._appended |= own.keys()
        return len(entries), appended

    def _note_trimmable(self, before: Mapping[str, str]) -> None:
        """Let go of what every cursor has left behind: the entry at which one stands is to stay."""
        for log, least in before.items():
            if "" < least < self._cursors.least(log):
                self._trimmable[log] = least

    def _is_due(self, last_us: int, every_us: int) -> bool:
        """Whether it is time again; a clock that was set back is not waited for."""
        return not 0 <= self._now_us - last_us < every_us

    async def _bring_up(self) -> None:
        """Move the cursors of databases of which nothing was found."""
        for log in self._logs:
            upto = self._cursors.start(log)
            for database, cursor in self._cursors.behind(log):
                nothing = Brought(Source(self._routes.system, log), cursor, upto, ())
                await self._feed.append(database, nothing, self._lease)
                self._cursors.move(log, database, upto)
        self._brought_up_us = self._now_us

    async def _read(self, log: str, after: str) -> list[Logged]:
        unknown: set[str] = set()

        def find(database: str, class_name: str) -> Fragment | None:
            fragment = self._routes.fragment_of(database, class_name)
            if fragment is None:
                unknown.add(database)
            return fragment

        entries = await self._store.changes(log, after or None, _BATCH, find)
        if unknown - {SCRATCH_DATABASE}:
            # Their classes are gone; or were made by another replica a moment ago.
            await self._routes.refresh()
            entries = await self._store.changes(log, after or None, _BATCH, find)
        return entries

    async def _publish(self, until_us: int) -> None:
        for database in self._routes.databases():
            told_us = self._published_us.get(database, 0)
            if database in self._appended or self._is_due(told_us, self._pace.publish_us):
                system, cursors = self._routes.system, self._cursors.of_database(database)
                await self._feed.publish(database, system, until_us, cursors, self._lease)
                self._published_us[database] = self._now_us
        self._appended.clear()


async def _all(tasks: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Await all of them, whatever becomes of one: none is to go on beside the next round."""
    results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


def _by_database(entries: Sequence[Logged]) -> dict[str, list[tuple[str, Change]]]:
    databases: defaultdict[str, list[tuple[str, Change]]] = defaultdict(list)
    for entry in entries:
        if entry.change is not None:
            databases[entry.change.database].append((entry.position, entry.change))
    return databases
