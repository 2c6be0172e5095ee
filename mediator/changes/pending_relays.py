"""The relays of all stores whose outboxes are in the records."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from mediator.base.batches import batches_by_size
from mediator.base.clock import Clock
from mediator.base.observation import ChangesRelayed, FeedGapFound, FeedRollbackFound
from mediator.changes.document import EncodedChange, encoded
from mediator.changes.feed import (
    APPENDED_AT_ONCE,
    APPENDED_BYTES,
    Feed,
    FeedRolledBack,
    WriterProgress,
)
from mediator.changes.log_relay import KEEP_S
from mediator.changes.pending_relay import Append, PendingRelay
from mediator.changes.recent_changes import RecentChanges
from mediator.changes.routes import RelayContext, SystemRoutes
from mediator.changes.writers import Writers, WriterStatus
from mediator.model.change import Change
from mediator.stores.guarded import GuardedStore
from mediator.stores.port import PendingChanges, StoreError, UnrelayedChanges

__all__ = ["PendingRelays"]

_APPENDED_WITHIN_S: Final = 240.0
"""For how long what was lost may wait to be appended again.

Of a change that is older than that and `KEEP_S`, the feed does not know any more whether it has it,
or a later one (`VERSIONS_KEPT_S` of its scripts).
"""

log = logging.getLogger(__name__)


class PendingRelays:
    """Relays what this process has written, store by store, and publishes its progress.

    `feed` are the feeds, with the registration of this replica; without them changes are dropped.
    """

    def __init__(self, context: RelayContext, feed: tuple[Feed, Writers] | None) -> None:
        self._context = context
        self._feed = feed
        self._relays: dict[str, tuple[PendingChanges, _StoreRelay]] = {}

    async def run(self) -> None:
        """Relay all changes; a store that fails does not stop the others.

        Raises:
            StoreError: The last failure. What could not be relayed is left for the next run.
            Unavailable: The feed does not answer.
        """
        failure: StoreError | None = None
        stores = [(each, each.store) for each in tuple(self._context.systems)]
        pending = [(each, store) for each, store in stores if isinstance(store, PendingChanges)]
        status = await self._feed[1].check() if self._feed and pending else None
        for guarded, store in pending:
            if guarded.breaker.is_open:
                continue
            try:
                await self._relay(guarded, store).run(status)
            except StoreError as error:
                failure = error
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """Remove this replica from the feeds, if it has relayed everything.

        Otherwise the others relay the rest once its lease has expired.
        """
        finished = [await relay.leave() for _, relay in self._relays.values()]
        if self._feed is not None and all(finished):
            await self._feed[1].leave()

    def _relay(self, guarded: GuardedStore, store: PendingChanges) -> _StoreRelay:
        """Return the relay of a store; a system that was registered again has another store."""
        known = self._relays.get(guarded.name)
        if known is None or known[0] is not store:
            context, routes = self._context, self._context.routes(guarded.name)
            if self._feed is None:
                relay = _StoreRelay(store, routes, _drop, context.clock)
            else:
                relay = _FeedRelay(context, store, routes, *self._feed)
            known = self._relays[guarded.name] = store, relay
        return known[1]


class _StoreRelay:
    """Relays one store to nowhere: without a feed, changes are only acknowledged."""

    def __init__(
        self,
        store: PendingChanges,
        routes: SystemRoutes,
        append: Append,
        clock: Clock,
        on_acknowledged: Append | None = None,
    ) -> None:
        self._routes = routes
        self._relay = PendingRelay(
            store, append, routes.fragment_of, clock, _log_inconsistent, on_acknowledged
        )

    async def run(self, _status: WriterStatus | None) -> None:
        await self._relay.drain()
        await self._relay.sweep(self._routes.fragments())

    async def leave(self) -> bool:
        return True


class _Lost(NamedTuple):
    """Changes to be appended again, batch by batch, and since when (monotonic, in s)."""

    since: float
    batches: deque[list[EncodedChange]]


class _FeedRelay(_StoreRelay):
    def __init__(
        self,
        context: RelayContext,
        store: PendingChanges,
        routes: SystemRoutes,
        feed: Feed,
        writers: Writers,
    ) -> None:
        super().__init__(store, routes, self._append, context.clock, feed.acknowledged)
        self._feed = feed
        self._writers = writers
        self._progress = WriterProgress(routes.system, context.replica)
        self._observe = context.observe
        self._clock = context.clock
        self._recent = RecentChanges(context.clock, KEEP_S)
        self._lost: dict[str, _Lost] = {}
        self._published: set[str] = set()
        self._registration = 0

    async def run(self, status: WriterStatus | None) -> None:
        """Relay all changes, and publish the progress.

        If replicas have gone, or their registrations may be lost, their changes are swept first.
        """
        assert status is not None
        # Before the changes are read: those acknowledged meanwhile are not covered by it.
        tick = await self._feed.tick()
        await self._append_all_lost()
        await self._register(tick)
        system = self._routes.system
        is_recovered = status.is_recovered(system)
        recovering = status.has_waited and not is_recovered
        gone = await self._unregistered(status) if recovering or is_recovered else {}
        if recovering or gone:
            await self._routes.refresh()  # their changes may be of new classes
            self._relay.sweep_soon()
        await super().run(status)
        for database, published in gone.items():
            # After the sweep: until then the feed waits for what they wrote.
            await self._feed.retire(database, system, published)
        if recovering:
            await self._writers.note_recovered(system, status)
        elif is_recovered and self._relay.complete:
            for database in self._published.intersection(self._routes.databases()):
                await self._publish(database, tick)

    async def leave(self) -> bool:
        """Remove this replica from the feeds if it has relayed everything: it writes no more."""
        await self._append_all_lost()
        await self._relay.drain()
        if self._relay.complete:
            for database in self._published:
                await self._feed.leave(database, self._progress)
        return self._relay.complete

    async def _register(self, tick: int) -> None:
        """Have every feed wait for this replica before it may acknowledge a write."""
        registration = self._writers.registration
        if registration != self._registration:
            self._published.clear()
            self._registration = registration
        for database in self._routes.databases() if registration else ():
            if database not in self._published:
                # Below every tick, and unlike the progress of an earlier registration.
                await self._publish(database, -tick)
                self._published.add(database)
                self._writers.note_counted(self._routes.system, database, registration)

    async def _unregistered(self, status: WriterStatus) -> dict[str, Mapping[str, int]]:
        system, gone = self._routes.system, {}
        registered = status.registrations.tokens
        for database in self._routes.databases():
            published = await self._feed.published_progress(database, system)
            gone[database] = {r: tick for r, tick in published.items() if r not in registered}
        return {database: published for database, published in gone.items() if published}

    async def _append(self, database: str, changes: Sequence[Change]) -> None:
        await self._retry_after_rollback(database, partial(self._append_own, database, changes))

    async def _append_own(self, database: str, changes: Sequence[Change]) -> None:
        for batch in _batches(map(encoded, changes)):
            count = await self._feed.append_newer(database, batch, self._progress)
            self._recent.add(database, batch)
            if count:
                self._observe(ChangesRelayed(self._routes.system, count))

    async def _publish(self, database: str, until_tick: int) -> None:
        publish = self._feed.publish_progress
        await self._retry_after_rollback(
            database, partial(publish, database, self._progress, until_tick)
        )

    async def _retry_after_rollback(
        self, database: str, act: Callable[[], Awaitable[None]]
    ) -> None:
        """Act; if the feed has lost changes, append them again first."""
        try:
            await act()
        except FeedRolledBack:
            self._observe(FeedRollbackFound(self._routes.system))
            # If this fails, the next call finds again that the feed has gone back.
            await self._feed.start_generation(database)
            self._note_lost(database)
            await self._append_lost(database)
            await act()

    def _note_lost(self, database: str) -> None:
        # The count of the lost state would be refused again; from here on `_lost` remembers it.
        batches = deque(_batches(self._recent.of(database)))
        self._lost[database] = _Lost(self._clock.monotonic(), batches)
        self._progress.appends.pop(database, None)
        if self._recent.is_truncated:
            reason = "more changes were relayed than this process keeps"
            self._observe(FeedGapFound(self._routes.system, (database,), reason))

    async def _append_lost(self, database: str) -> None:
        if database not in self._lost:
            return
        since, batches = self._lost[database]
        if self._clock.monotonic() - since > _APPENDED_WITHIN_S:
            await self._feed.start_generation(database)
            reason = "the feed was away for too long to have what it has lost appended again"
            self._observe(FeedGapFound(self._routes.system, (database,), reason))
            batches.clear()
        while batches:
            await self._feed.append_newer(database, batches[0], self._progress)
            batches.popleft()
        self._lost.pop(database, None)

    async def _append_all_lost(self) -> None:
        """Append what a former call could not, before anything is appended, or published."""
        databases = set(self._routes.databases())
        for database in tuple(self._lost):
            if database in databases:
                await self._retry_after_rollback(database, partial(self._append_lost, database))
            else:
                del self._lost[database]  # it was dropped, with its feed


async def _drop(_database: str, _changes: Sequence[Change]) -> None:
    """There is no feed."""


def _log_inconsistent(record: UnrelayedChanges) -> None:
    fragment = record.fragment
    log.error(
        "%s: the changes of %s/%s/%s do not lead to its values; the last one was made to",
        fragment.system,
        fragment.database,
        fragment.class_name,
        record.id,
    )


def _batches(changes: Iterable[EncodedChange]) -> Iterator[list[EncodedChange]]:
    return batches_by_size(changes, _size_of, APPENDED_AT_ONCE, APPENDED_BYTES)


def _size_of(change: EncodedChange) -> int:
    return len(change.document)
