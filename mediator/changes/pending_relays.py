"""The relays of all stores whose outboxes are in the records, together one duty."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial

from mediator.changes.pending_relay import Append, PendingRelay
from mediator.clock import Clock
from mediator.placement.routing import RoutingModel
from mediator.stores.guarded import GuardedStore
from mediator.stores.port import Fragment, PendingChanges, StoreError, Unsettled
from mediator.systems import Systems

__all__ = ["PendingRelays"]

log = logging.getLogger(__name__)


class PendingRelays:
    """Relays what this process has written, store by store.

    Args:
        systems: The opened systems.
        model: Returns the routing model in force.
        append: Brings changes to the feed.
        clock: The time.
    """

    def __init__(
        self, systems: Systems, model: Callable[[], RoutingModel], append: Append, clock: Clock
    ) -> None:
        self._systems = systems
        self._model = model
        self._append = append
        self._clock = clock
        self._relays: dict[str, tuple[PendingChanges, PendingRelay]] = {}

    async def run(self) -> None:
        """Relay what there is; a store that fails keeps nothing from the others.

        Raises:
            StoreError: The last failure. What could not be relayed is left for the next run.
        """
        failure: StoreError | None = None
        for guarded in tuple(self._systems):
            store = guarded.store
            if not isinstance(store, PendingChanges) or guarded.breaker.is_open:
                continue
            relay = self._relay(guarded.name, store)
            try:
                await relay.drain()
                await relay.sweep(self._fragments(guarded))
            except StoreError as error:
                failure = error
        if failure is not None:
            raise failure

    def _relay(self, system: str, store: PendingChanges) -> PendingRelay:
        """Return the relay of a store; a system that was registered anew has another store."""
        known = self._relays.get(system)
        if known is None or known[0] is not store:
            find = partial(self._fragment, system)
            known = store, PendingRelay(store, self._append, find, self._clock, _report)
            self._relays[system] = known
        return known[1]

    def _fragments(self, guarded: GuardedStore) -> Iterator[Fragment]:
        for database in self._model().databases.values():
            for route in database.classes.values():
                yield from (f for f in route.fragments if f.system == guarded.name)

    def _fragment(self, system: str, database: str, class_name: str) -> Fragment | None:
        tree = self._model().databases.get(database)
        route = tree.classes.get(class_name) if tree else None
        fragments = route.fragments if route else ()
        return next((f for f in fragments if f.system == system), None)


def _report(odd: Unsettled) -> None:
    fragment = odd.fragment
    log.error(
        "%s: the changes of %s/%s/%s do not lead to its values; the last one was made to",
        fragment.system,
        fragment.database,
        fragment.class_name,
        odd.id,
    )
