"""The relays of all stores whose outboxes are in the records, together one duty."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from mediator.changes.feed import Account, Feed, FeedWentBack
from mediator.changes.model import Change
from mediator.changes.pending_relay import Append, PendingRelay
from mediator.changes.recent import Recent
from mediator.changes.routes import SystemRoutes
from mediator.clock import Clock
from mediator.observation import ChangesRelayed, FeedFellBack, FeedGapFound, Observer
from mediator.stores.guarded import GuardedStore
from mediator.stores.port import PendingChanges, StoreError, Unsettled
from mediator.systems import Systems

__all__ = ["DEAD_US", "PendingRelays"]

log = logging.getLogger(__name__)

DEAD_US: Final = 5_000_000
"""A replica that has told nothing for so long is taken to be dead, and is swept after."""


class PendingRelays:
    """Relays what this process has written, store by store, and tells the feeds how far it is.

    Args:
        systems: The opened systems.
        routes: Returns what the routing model says of a system.
        feed: The feeds; None: there are none, and changes are let go.
        replica: Name of this replica.
        observe: Told of what happens.
        clock: The time.
    """

    def __init__(
        self,
        systems: Systems,
        routes: Callable[[str], SystemRoutes],
        feed: Feed | None,
        replica: str,
        observe: Observer,
        clock: Clock,
    ) -> None:
        self._systems = systems
        self._routes = routes
        self._feed = feed
        self._replica = replica
        self._observe = observe
        self._clock = clock
        self._relays: dict[str, tuple[PendingChanges, _Relaying]] = {}

    async def run(self) -> None:
        """Relay what there is; a store that fails keeps nothing from the others.

        Raises:
            StoreError: The last failure. What could not be relayed is left for the next run.
            Unavailable: The feed does not answer.
        """
        failure: StoreError | None = None
        for guarded in tuple(self._systems):
            store = guarded.store
            if not isinstance(store, PendingChanges) or guarded.breaker.is_open:
                continue
            try:
                await self._relay(guarded, store).run()
            except StoreError as error:
                failure = error
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """Tell the feeds that this replica has nothing more to bring."""
        for _, relaying in self._relays.values():
            await relaying.leave()

    def _relay(self, guarded: GuardedStore, store: PendingChanges) -> _Relaying:
        """Return the relay of a store; a system that was registered anew has another store."""
        known = self._relays.get(guarded.name)
        if known is None or known[0] is not store:
            routes = self._routes(guarded.name)
            if self._feed is None:
                made = _Relaying(store, routes, _nowhere, self._clock)
            else:
                made = _Telling(
                    store, routes, self._feed, self._replica, self._observe, self._clock
                )
            known = self._relays[guarded.name] = store, made
        return known[1]


class _Relaying:
    """One store's relay."""

    def __init__(
        self,
        store: PendingChanges,
        routes: SystemRoutes,
        append: Append,
        clock: Clock,
        settled: Append | None = None,
    ) -> None:
        self._routes = routes
        find = routes.fragment_of
        self._relay = PendingRelay(store, append, find, clock, _report, settled)

    async def run(self) -> None:
        """Relay what there is."""
        await self._relay.drain()
        await self._relay.sweep(self._routes.fragments())

    async def leave(self) -> None:
        """End."""


class _Telling(_Relaying):
    """One store's relay to the feeds, which are told how far it is."""

    def __init__(
        self,
        store: PendingChanges,
        routes: SystemRoutes,
        feed: Feed,
        replica: str,
        observe: Observer,
        clock: Clock,
    ) -> None:
        super().__init__(store, routes, self._append, clock, feed.settled)
        self._feed = feed
        self._account = Account(routes.system, replica)
        self._observe = observe
        self._recent = Recent(clock)
        self._told: set[str] = set()

    async def run(self) -> None:
        """Relay what there is, and tell."""
        now_us = await self._feed.now_us()
        for database in sorted(set(self._routes.databases()) - self._told):
            await self._tell(database, 0)  # not complete before the first sweep is over
        quiet = await self._quiet(now_us)
        if quiet:
            self._relay.sweep_soon()
        await super().run()
        for database in quiet:
            await self._feed.retire(database, self._account, now_us - DEAD_US)
        if self._relay.complete:
            for database in self._routes.databases():
                await self._tell(database, now_us)

    async def leave(self) -> None:
        """Take this replica out of account: it writes no more, and has brought everything."""
        await self._relay.drain()
        if self._relay.complete:
            for database in self._told:
                await self._feed.leave(database, self._account)

    async def _append(self, changes: Sequence[Change]) -> None:
        for database, own in _by_database(changes).items():
            await self._insist(database, partial(self._bring, own))

    async def _bring(self, changes: Sequence[Change]) -> None:
        count = await self._feed.append_above(changes, self._account)
        self._recent.note(changes)
        if count:
            self._observe(ChangesRelayed(self._routes.system, count))

    async def _quiet(self, now_us: int) -> list[str]:
        """Return databases in which a replica has told nothing for long."""
        quiet = []
        for database in self._routes.databases():
            until_us = (await self._feed.relayed_until(database)).get(self._routes.system, now_us)
            if until_us < now_us - DEAD_US:
                quiet.append(database)
        return quiet

    async def _tell(self, database: str, until_us: int) -> None:
        publish = self._feed.publish_own
        await self._insist(database, partial(publish, database, self._account, until_us))
        self._told.add(database)

    async def _insist(self, database: str, act: Callable[[], Awaitable[None]]) -> None:
        """Act; if the feed has lost what it had, only once that is there again."""
        try:
            await act()
        except FeedWentBack:
            self._observe(FeedFellBack(self._routes.system))
            await self._feed.renew_incarnation(database)
            await self._bring_again(database)
            await act()

    async def _bring_again(self, database: str) -> None:
        """Bring what the records have no more, but the feed has lost."""
        self._account.brought.pop(database, None)
        await self._feed.append_above(self._recent.of(database), self._account)
        if self._recent.cut:
            reason = "more was relayed than this process remembers"
            self._observe(FeedGapFound(self._routes.system, (database,), reason))


def _by_database(changes: Sequence[Change]) -> dict[str, list[Change]]:
    databases: defaultdict[str, list[Change]] = defaultdict(list)
    for change in changes:
        databases[change.database_id].append(change)
    return databases


async def _nowhere(_changes: Sequence[Change]) -> None:
    """Let changes go: there is no feed that takes them."""


def _report(odd: Unsettled) -> None:
    fragment = odd.fragment
    log.error(
        "%s: the changes of %s/%s/%s do not lead to its values; the last one was made to",
        fragment.system,
        fragment.database,
        fragment.class_name,
        odd.id,
    )
