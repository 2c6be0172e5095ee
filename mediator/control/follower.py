"""Follows the catalogue: keeps a replica's routing model up to date with schema changes.

It reads and parses only changed databases (`mediator.catalogue.schemas`), so the cost of a change
or a request does not grow with the number of databases. Possible races:

- *Another replica sets a schema, and a request for it arrives here at once.* The request finds no
  such class and looks at the catalogue; the look begins after the request, thus after the change.
- *Many requests name classes that do not exist.* They share a look, which is one query
  (`Coalesced`).
- *This replica changes a schema while it reads the changes of others.* The data read may be older
  than the change: it is dropped, and read again from the new moment.
- *Others have changed schemas between this replica's moment and its own change.* It puts its change
  in force, but stays at its moment: the next look finds the others' changes, and its own again,
  which it recognises.
- *A database is dropped, and created again.* Both changes name it; its final state counts. A
  replica that finds it missing forgets its routes.
- *A replica was away for long, or the catalogue was restored*, so that its epoch goes back or has
  another history: everything is read. The model keeps its number until the catalogue's is greater,
  since the number of a model never decreases.
- *The catalogue does not answer, or a look is cut short.* Nothing has changed here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

from mediator.base.errors import MediatorError
from mediator.base.offload import offload
from mediator.catalogue.schemas import CatalogueSchemas
from mediator.catalogue.stored_databases import (
    CatalogueSnapshot,
    Difference,
    Moment,
    StoredDatabase,
)
from mediator.control.layout import fragments_of, is_read_by, route_of, same_location
from mediator.data_plane.executor import Executor
from mediator.operations.calls import StoreCalls
from mediator.routing.model import DatabaseRoute, RoutingModel
from mediator.stores.port import Fragment

__all__ = ["Coalesced", "Follower"]


@dataclass(frozen=True, slots=True)
class _Database:
    stored: StoredDatabase
    route: DatabaseRoute


@dataclass(frozen=True, slots=True)
class _State:
    """The state of a replica: all changes up to a moment, and perhaps its own since."""

    moment: Moment
    databases: Mapping[str, _Database]
    own_changes: frozenset[str] = frozenset()


class Follower:
    """Keeps an executor's routing model, which it alone sets, up to date with the catalogue."""

    def __init__(self, catalogue: CatalogueSchemas, executor: Executor, calls: StoreCalls) -> None:
        self._catalogue = catalogue
        self._executor = executor
        self._calls = calls
        self._state = _State(Moment(0), {})
        self.look = Coalesced(self._look)
        """Look for changes, and put them in force; one query if there are none.

        Raises `Unavailable` if the catalogue does not answer.
        """

    def stored(self, name: str) -> StoredDatabase | None:
        placed = self._state.databases.get(name)
        return placed.stored if placed else None

    def all(self) -> list[StoredDatabase]:
        return [placed.stored for _, placed in sorted(self._state.databases.items())]

    async def in_force(self) -> int:
        """Put changes in force, end overdue holds, and return the epoch."""
        await self.look()
        if any(placed.stored.hold for placed in self._state.databases.values()):
            await self._catalogue.release_overdue()
        return self._state.moment.epoch

    async def catch_up(self) -> None:
        """Put in force all changes up to now; waits for a change in progress."""
        while True:
            before = self._state
            changes = await self._catalogue.since(before.moment)
            if isinstance(changes, Difference) and not before.own_changes <= changes.changed.keys():
                changes = await self._catalogue.snapshot()  # a restoration lost our own change
            after = await _apply(before, changes)
            if self._state is before:  # else our own change came between: read again
                if after != before:
                    self._adopt(after)
                return

    def adopt_put(self, moment: Moment, stored: StoredDatabase, route: DatabaseRoute) -> None:
        """Put a change of this replica in force, whose routes are known already."""
        databases = {**self._state.databases, stored.name: _Database(stored, route)}
        self._advance(moment, databases, stored.name)

    async def adopt_update(self, moment: Moment, stored: StoredDatabase) -> None:
        """Put a change of this replica in force that left the layout unchanged, such as a hold.

        The routes in force are kept only if they are of this layout: fragments are admitted by
        them, and other fragments may be written differently.
        """
        placed = await _with_routes(self._state.databases.get(stored.name), stored)
        self._advance(moment, {**self._state.databases, stored.name: placed}, stored.name)

    def adopt_removal(self, moment: Moment, name: str) -> None:
        databases = {n: placed for n, placed in self._state.databases.items() if n != name}
        self._advance(moment, databases, name)

    async def _look(self) -> None:
        if self._state.own_changes or await self._catalogue.moment() != self._state.moment:
            await self.catch_up()

    def _advance(self, moment: Moment, databases: Mapping[str, _Database], name: str) -> None:
        current, own_changes = self._state.moment, self._state.own_changes
        if moment.epoch == current.epoch + 1:
            self._adopt(_State(moment, databases, own_changes))
        else:
            # Other replicas' changes came between: the next look starts before them.
            self._adopt(_State(current, databases, own_changes | {name}))

    def _adopt(self, state: _State) -> None:
        for name in {**self._state.databases, **state.databases}:
            before, after = self._state.databases.get(name), state.databases.get(name)
            if before is not after:
                held = _held_fragments(after)
                # A write may have resolved its route by the former model.
                self._calls.admission.refuse(_unread_fragments(before, after) | held)
                self._calls.admission.admit(
                    set(fragments_of(after.route if after else None)) - held
                )
        self._state = state
        routes = {name: _route(placed) for name, placed in state.databases.items()}
        # It decreases if the catalogue was restored; an executor adopts no lower number.
        epoch = max(state.moment.epoch, self._executor.model.epoch)
        self._executor.adopt(RoutingModel(epoch, routes))


async def _apply(before: _State, changes: CatalogueSnapshot | Difference) -> _State:
    if isinstance(changes, CatalogueSnapshot):
        changed, databases = changes.databases, {}
    else:
        changed = {name: stored for name, stored in changes.changed.items() if stored}
        former = before.databases.items()
        databases = {name: placed for name, placed in former if name not in changes.changed}
    for name, stored in changed.items():
        databases[name] = await _with_routes(before.databases.get(name), stored)
    return _State(changes.moment, databases)


def _route(placed: _Database) -> DatabaseRoute:
    if placed.stored.hold is None:
        return placed.route
    return replace(placed.route, held=frozenset(placed.stored.hold.classes))


def _held_fragments(placed: _Database | None) -> set[Fragment]:
    if placed is None or placed.stored.hold is None:
        return set()
    held = placed.stored.hold.classes
    return {f for f in fragments_of(placed.route) if f.class_name in held}


def _unread_fragments(before: _Database | None, after: _Database | None) -> set[Fragment]:
    """Return the fragments that the model in force does not read in full: writes would be lost.

    They were held, unless this replica was away: then a write may still be on its way to one.
    """
    new = after.route if after else None
    old = fragments_of(before.route) if before else []
    return {f for f in old if not is_read_by(f, same_location(new, f))}


async def _with_routes(former: _Database | None, stored: StoredDatabase) -> _Database:
    """Return a database with its routes; the same objects as long as only a hold changes."""
    if former is not None and former.stored == replace(stored, hold=former.stored.hold):
        # Writes are refused by fragment: a new object for the same fragment would be admitted.
        return _Database(stored, former.route)
    return _Database(stored, await offload(True, route_of, stored))


class Coalesced:
    """Runs a function for all callers, one run at a time.

    A caller gets a run that *started after its call*, since the present one may have read too
    early. All calls during a run share the next one, with its failure, so each waits for at most
    two runs. If the caller of a run is cancelled, the next caller starts another.
    """

    def __init__(self, run: Callable[[], Awaitable[object]]) -> None:
        self._run = run
        self._lock = asyncio.Lock()
        self._started = 0
        self._ended = 0
        self._failure: MediatorError | None = None

    async def __call__(self) -> None:
        started_before = self._started
        async with self._lock:
            # Otherwise a run started and ended while this caller waited for the lock.
            if self._ended <= started_before:
                await self._run_once()
            if self._failure is not None:
                # Raised for many callers: each would add its frames to the traceback.
                raise self._failure.with_traceback(None)

    async def _run_once(self) -> None:
        self._started += 1
        self._failure = None
        try:
            await self._run()
        except MediatorError as error:
            self._failure = error
        self._ended = self._started
