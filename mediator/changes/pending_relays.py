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

_MAX_LOST_S: Final = 240.0
"""How long lost changes can wait to be appended again.

For a change older than this and `KEEP_S` together, the feed no longer knows whether it has the
change or a later one (`VERSION_RETENTION_S` of its scripts).
"""

log = logging.getLogger(__name__)


class PendingRelays:
    """Relays the writes of this process, store by store, and publishes its progress.

    `feed`: the feeds and the registration of this replica; without them changes are dropped.
    """

    def __init__(self, context: RelayContext, feed: tuple[Feed, Writers] | None) -> None:
        self._context = context
        self._feed = feed
        self._relays: dict[str, tuple[PendingChanges, _StoreRelay]] = {}

    async def run(self) -> None:
        """Relay all changes; a failing store does not stop the others.

        Raises:
            StoreError: The last failure. Changes that failed are left for the next run.
            Unavailable: The feed does not respond.
        """
        failure: StoreError | None = None
        stores = [(guarded, guarded.store) for guarded in tuple(self._context.systems)]
        pending = [
            (guarded, store) for guarded, store in stores if isinstance(store, PendingChanges)
        ]
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

        Otherwise other replicas relay the remaining changes once its lease has expired.
        """
        finished = [await relay.leave() for _, relay in self._relays.values()]
        if self._feed is not None and all(finished):
            await self._feed[1].leave()

    def _relay(self, guarded: GuardedStore, store: PendingChanges) -> _StoreRelay:
        """Return the relay of a store; a system that was re-registered has a new store."""
        entry = self._relays.get(guarded.name)
        if entry is None or entry[0] is not store:
            context, routes = self._context, self._context.routes(guarded.name)
            if self._feed is None:
                relay = _StoreRelay(store, routes, _drop, context.clock)
            else:
                relay = _FeedRelay(context, store, routes, *self._feed)
            entry = self._relays[guarded.name] = store, relay
        return entry[1]


class _StoreRelay:
    """Without a feed, changes are only acknowledged."""

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
    """Batches to append again, and since when (monotonic, in s)."""

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

        If replicas have left, or their registrations may be lost, it sweeps their changes first.
        """
        assert status is not None
        # Before the changes are read: the tick does not cover changes acknowledged meanwhile.
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
            # After the sweep: until then the feed waits for their writes.
            await self._feed.retire(database, system, published)
        if recovering:
            await self._writers.note_recovered(system, status)
        elif is_recovered and self._relay.complete:
            for database in self._published.intersection(self._routes.databases()):
                await self._publish(database, tick)

    async def leave(self) -> bool:
        """Remove this replica from the feeds if it has relayed everything; it no longer writes."""
        await self._append_all_lost()
        await self._relay.drain()
        if self._relay.complete:
            for database in self._published:
                await self._feed.leave(database, self._progress)
        return self._relay.complete

    async def _register(self, tick: int) -> None:
        """Make every feed wait for this replica before it can acknowledge a write."""
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
        await self._retry_after_rollback(database, partial(self._append_batches, database, changes))

    async def _append_batches(self, database: str, changes: Sequence[Change]) -> None:
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
        """Call `act`; if the feed has lost changes, append them again first."""
        try:
            await act()
        except FeedRolledBack:
            self._observe(FeedRollbackFound(self._routes.system))
            # If this fails, the next call finds the rollback again.
            await self._feed.start_generation(database)
            self._note_lost(database)
            await self._append_lost(database)
            await act()

    def _note_lost(self, database: str) -> None:
        # The feed would refuse the count of the lost state; from here on `_lost` keeps the changes.
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
        if self._clock.monotonic() - since > _MAX_LOST_S:
            await self._feed.start_generation(database)
            reason = (
                "the feed was unavailable for too long: its lost changes cannot be appended again"
            )
            self._observe(FeedGapFound(self._routes.system, (database,), reason))
            batches.clear()
        while batches:
            await self._feed.append_newer(database, batches[0], self._progress)
            batches.popleft()
        self._lost.pop(database, None)

    async def _append_all_lost(self) -> None:
        """Append the changes that an earlier call could not, before any append or publish."""
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
