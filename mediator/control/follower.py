"""Following the catalogue: the routing model of a replica is kept up with schemas as they are set.

What is read and parsed is what has changed (`mediator.catalogue.schemas`), so that neither a change
nor a request costs the more, the more databases there are. What may come in between:

- *Another replica sets a schema, and a request for it comes here at once.* The request finds no
  such class and looks; the look begins after the request came, so after the schema was set.
- *Many requests name what is not there.* They share a look, which is one query (`Coalesced`).
- *This replica changes a schema while it reads what others did.* What was read may be older than
  the change: it is dropped, and read again from where the replica is then.
- *Others have changed schemas between what this replica knows and its own change.* It puts its
  change in force, but stays at the moment it knows: the next look finds the others', and its own
  again, which is recognised.
- *A database is dropped, and created again.* Both changes name it; its final state counts. A
  replica that sees it gone forgets its routes.
- *A replica was away for long, or the catalogue was restored*, so that its epoch goes back or has
  another history: all is read. The model keeps the number it had until the catalogue's is greater,
  for the number of a model never goes back.
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
    Difference,
    Moment,
    Snapshot,
    StoredDatabase,
)
from mediator.control.layout import fragments_of, is_read_by, route_of, same_place
from mediator.data_plane.executor import Executor
from mediator.operations.calls import StoreCalls
from mediator.routing.model import DatabaseRoute, RoutingModel
from mediator.stores.port import Fragment

__all__ = ["Coalesced", "Follower"]


@dataclass(frozen=True, slots=True)
class _Placed:
    stored: StoredDatabase
    route: DatabaseRoute


@dataclass(frozen=True, slots=True)
class _Known:
    """What a replica knows: all that had changed by a moment, and perhaps its own changes since."""

    moment: Moment
    databases: Mapping[str, _Placed]
    own: frozenset[str] = frozenset()


class Follower:
    """Keeps an executor's routing model, which nobody else sets, up with the catalogue."""

    def __init__(self, catalogue: CatalogueSchemas, executor: Executor, calls: StoreCalls) -> None:
        self._catalogue = catalogue
        self._executor = executor
        self._calls = calls
        self._known = _Known(Moment(0), {})
        self.look = Coalesced(self._look)
        """Look whether anything has changed, and put in force what has; one query if nothing has.

        Raises `Unavailable` if the catalogue does not answer.
        """

    def stored(self, name: str) -> StoredDatabase | None:
        """Return a database as the catalogue keeps it, if it is known."""
        placed = self._known.databases.get(name)
        return placed.stored if placed else None

    def all(self) -> list[StoredDatabase]:
        """Return all databases, in the order of their names."""
        return [placed.stored for _, placed in sorted(self._known.databases.items())]

    async def in_force(self) -> int:
        """Put in force what has changed, end holds that are overdue, and return the epoch."""
        await self.look()
        if any(placed.stored.hold for placed in self._known.databases.values()):
            await self._catalogue.release_overdue()
        return self._known.moment.epoch

    async def catch_up(self) -> None:
        """Put in force what has changed by now; waits for a change that is being made."""
        while True:
            before = self._known
            news = await self._catalogue.since(before.moment)
            if isinstance(news, Difference) and not before.own <= news.changed.keys():
                news = await self._catalogue.snapshot()  # its own change was lost by a restoration
            after = await _after(before, news)
            if self._known is before:  # else this replica changed a schema meanwhile: read again
                if after != before:
                    self._adopt(after)
                return

    def has_put(self, moment: Moment, stored: StoredDatabase, route: DatabaseRoute) -> None:
        """Put a change of this replica, or a hold, in force."""
        databases = {**self._known.databases, stored.name: _Placed(stored, route)}
        self._advance(moment, databases, stored.name)

    def has_removed(self, moment: Moment, name: str) -> None:
        """Put a removal by this replica in force."""
        databases = {n: placed for n, placed in self._known.databases.items() if n != name}
        self._advance(moment, databases, name)

    async def _look(self) -> None:
        if self._known.own or await self._catalogue.moment() != self._known.moment:
            await self.catch_up()

    def _advance(self, moment: Moment, databases: Mapping[str, _Placed], name: str) -> None:
        here, own = self._known.moment, self._known.own
        if moment.epoch == here.epoch + 1:  # nothing was between
            self._adopt(_Known(moment, databases, own))
        else:
            self._adopt(_Known(here, databases, own | {name}))

    def _adopt(self, known: _Known) -> None:
        for name in {**self._known.databases, **known.databases}:
            before, after = self._known.databases.get(name), known.databases.get(name)
            if before is not after:
                self._calls.admission.refuse(_left(before, after))
                self._calls.admission.refuse(held := _held(after))
                self._calls.admission.admit(
                    set(fragments_of(after.route if after else None)) - held
                )
        self._known = known
        routes = {name: _route(placed) for name, placed in known.databases.items()}
        epoch = max(known.moment.epoch, self._executor.model.epoch)
        self._executor.adopt(RoutingModel(epoch, routes))


async def _after(before: _Known, news: Snapshot | Difference) -> _Known:
    """Return what is known with the news."""
    if isinstance(news, Snapshot):
        changed, databases = news.databases, {}
    else:
        changed = {name: stored for name, stored in news.changed.items() if stored}
        kept = before.databases.items()
        databases = {name: placed for name, placed in kept if name not in news.changed}
    for name, stored in changed.items():
        databases[name] = await _placed(before.databases.get(name), stored)
    return _Known(news.moment, databases)


def _route(placed: _Placed) -> DatabaseRoute:
    if placed.stored.hold is None:
        return placed.route
    return replace(placed.route, held=frozenset(placed.stored.hold.classes))


def _held(placed: _Placed | None) -> set[Fragment]:
    """Return the fragments of a database's classes that are held."""
    if placed is None or placed.stored.hold is None:
        return set()
    held = placed.stored.hold.classes
    return {f for f in fragments_of(placed.route) if f.class_name in held}


def _left(before: _Placed | None, after: _Placed | None) -> set[Fragment]:
    """Return the fragments that what is in force now does not read all of: writes would be lost.

    They were held, unless this replica was away: then a write may still be on its way to one.
    """
    new = after.route if after else None
    old = fragments_of(before.route) if before else []
    return {f for f in old if not is_read_by(f, same_place(new, f))}


async def _placed(known: _Placed | None, stored: StoredDatabase) -> _Placed:
    """Return the routes of a database; the same objects as long as nothing but a hold changes.

    Writes are held by fragment: a fragment made anew would get around that.
    """
    if known is not None and known.stored == replace(stored, hold=known.stored.hold):
        return _Placed(stored, known.route)
    return _Placed(stored, await offload(True, route_of, stored))


class Coalesced:
    """Runs something for all callers, one run at a time.

    A caller gets a run that *started after its call*, since the present one may have read too
    early. All calls during a run share the next one, with its failure, so each waits for two runs
    at most. A run whose caller is cancelled does not count; the next caller starts another.
    """

    def __init__(self, run: Callable[[], Awaitable[object]]) -> None:
        self._run = run
        self._lock = asyncio.Lock()
        self._started = 0
        self._ended = 0
        self._failure: MediatorError | None = None

    async def __call__(self) -> None:
        """Wait for a run that starts from now on; raises what it raises."""
        started_before = self._started
        async with self._lock:
            if self._ended <= started_before:
                await self._run_once()
            if self._failure is not None:
                raise self._failure.with_traceback(None)

    async def _run_once(self) -> None:
        self._started += 1
        self._failure = None
        try:
            await self._run()
        except MediatorError as error:
            self._failure = error
        self._ended = self._started
