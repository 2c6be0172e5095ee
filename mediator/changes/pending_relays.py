"""The relays of all stores whose outboxes are in the records, together one duty."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from mediator.base.clock import Clock
from mediator.base.observation import ChangesRelayed, FeedFellBack, FeedGapFound, Observer
from mediator.changes.feed import Account, Feed, FeedWentBack
from mediator.changes.pending_relay import Append, PendingRelay
from mediator.changes.recent import Recent
from mediator.changes.routes import SystemRoutes
from mediator.changes.writers import Standing, Writers
from mediator.model.change import Change
from mediator.stores.guarded import GuardedStore
from mediator.stores.port import PendingChanges, StoreError, UnrelayedChanges
from mediator.stores.systems import Systems

__all__ = ["PendingRelays"]

log = logging.getLogger(__name__)


class PendingRelays:
    """Relays what this process has written, store by store, and tells the feeds how far it is.

    Args:
        systems: The opened systems.
        routes: Returns what the routing model says of a system.
        feed: The feeds, with the registration of this replica; None: there are none, and changes
            are let go.
        replica: Name of this replica.
        observe: Told of what happens.
        clock: The time.
    """

    def __init__(
        self,
        systems: Systems,
        routes: Callable[[str], SystemRoutes],
        feed: tuple[Feed, Writers] | None,
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
        found = [(each, each.store) for each in tuple(self._systems)]
        pending = [(each, store) for each, store in found if isinstance(store, PendingChanges)]
        standing = await self._feed[1].look() if self._feed and pending else None
        for guarded, store in pending:
            if guarded.breaker.is_open:
                continue
            try:
                await self._relay(guarded, store).run(standing)
            except StoreError as error:
                failure = error
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """Tell the feeds that this replica has nothing more to bring.

        If it has, or cannot be sure, the others find it once the lease is over.
        """
        left = [await relaying.leave() for _, relaying in self._relays.values()]
        if self._feed is not None and all(left):
            await self._feed[1].leave()

    def _relay(self, guarded: GuardedStore, store: PendingChanges) -> _Relaying:
        """Return the relay of a store; a system that was registered anew has another store."""
        known = self._relays.get(guarded.name)
        if known is None or known[0] is not store:
            routes = self._routes(guarded.name)
            if self._feed is None:
                made = _Relaying(store, routes, _nowhere, self._clock)
            else:
                made = _Telling(
                    store, routes, *self._feed, self._replica, self._observe, self._clock
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

    async def run(self, standing: Standing | None) -> None:  # noqa: ARG002 - nobody else relays
        """Relay what there is; `standing` tells of other replicas."""
        await self._bring_all()

    async def leave(self) -> bool:
        """End; return whether everything was brought."""
        return True

    async def _bring_all(self) -> None:
        await self._relay.drain()
        await self._relay.sweep(self._routes.fragments())


class _Telling(_Relaying):
    """One store's relay to the feeds, which are told how far it is."""

    def __init__(
        self,
        store: PendingChanges,
        routes: SystemRoutes,
        feed: Feed,
        writers: Writers,
        replica: str,
        observe: Observer,
        clock: Clock,
    ) -> None:
        super().__init__(store, routes, self._append, clock, feed.settled)
        self._feed = feed
        self._writers = writers
        self._account = Account(routes.system, replica)
        self._observe = observe
        self._recent = Recent(clock)
        self._told: set[str] = set()
        self._registration = 0

    async def run(self, standing: Standing | None) -> None:
        """Relay what there is, and tell how far that is.

        Where others have gone, or may have been forgotten, what they wrote is looked for first.
        """
        assert standing is not None
        tick = await self._feed.tick()
        await self._register(tick)
        system = self._routes.system
        settling = standing.has_waited and not standing.is_settled(system)
        gone = await self._gone(standing) if settling or standing.is_settled(system) else {}
        if settling or gone:
            await self._routes.refresh()  # what they wrote may be of a class that is new
            self._relay.sweep_soon()
        await self._bring_all()
        for database, accounts in gone.items():
            await self._feed.retire(database, system, accounts)
        if settling:
            await self._writers.settle(system, standing)
        elif standing.is_settled(system) and self._relay.complete:
            for database in self._told.intersection(self._routes.databases()):
                await self._tell(database, tick)

    async def leave(self) -> bool:
        """Take this replica out of account, if it has brought everything: it writes no more."""
        await self._relay.drain()
        if self._relay.complete:
            for database in self._told:
                await self._feed.leave(database, self._account)
        return self._relay.complete

    async def _register(self, tick: int) -> None:
        """Be counted in every feed before a write may be acknowledged that is to be in it."""
        registration = self._writers.registration
        if registration != self._registration:
            self._told.clear()
            self._registration = registration
        for database in self._routes.databases() if registration else ():
            if database not in self._told:
                # Below every tick, and unlike what was told in an earlier registration.
                await self._tell(database, -tick)
                self._told.add(database)
                self._writers.count(self._routes.system, database, registration)

    async def _gone(self, standing: Standing) -> dict[str, Mapping[str, int]]:
        """Return for each database what was told by those who are not registered any more."""
        system, gone = self._routes.system, {}
        for database in self._routes.databases():
            told = await self._feed.accounts(database, system)
            gone[database] = {r: t for r, t in told.items() if r not in standing.seen.tokens}
        return {database: accounts for database, accounts in gone.items() if accounts}

    async def _append(self, changes: Sequence[Change]) -> None:
        for database, own in _by_database(changes).items():
            await self._insist(database, partial(self._bring, own))

    async def _bring(self, changes: Sequence[Change]) -> None:
        count = await self._feed.append_above(changes, self._account)
        self._recent.note(changes)
        if count:
            self._observe(ChangesRelayed(self._routes.system, count))

    async def _tell(self, database: str, until_tick: int) -> None:
        publish = self._feed.publish_own
        await self._insist(database, partial(publish, database, self._account, until_tick))

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


def _report(odd: UnrelayedChanges) -> None:
    fragment = odd.fragment
    log.error(
        "%s: the changes of %s/%s/%s do not lead to its values; the last one was made to",
        fragment.system,
        fragment.database,
        fragment.class_name,
        odd.id,
    )
