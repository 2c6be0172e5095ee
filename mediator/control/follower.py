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
    CatalogueSnapshot,
    Difference,
    Moment,
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
class _Followed:
    """What a replica knows: all that had changed by a moment, and perhaps its own changes since."""

    moment: Moment
    databases: Mapping[str, _Placed]
    own: frozenset[str] = frozenset()


class Follower:
    """Keeps the routing model of an executor, which nothing else sets, up with the catalogue."""

    def __init__(self, catalogue: CatalogueSchemas, executor: Executor, calls: StoreCalls) -> None:
        self._catalogue = catalogue
        self._executor = executor
        self._calls = calls
        self._known = _Followed(Moment(0), {})
        self.look = Coalesced(self._look)
        """Look whether anything has changed, and put in force what has; one query if nothing has.

        Raises `Unavailable` if the catalogue does not answer.
        """

    def stored(self, name: str) -> StoredDatabase | None:
        placed = self._known.databases.get(name)
        return placed.stored if placed else None

    def all(self) -> list[StoredDatabase]:
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
        """Put a change of this replica in force, whose routes are known already."""
        databases = {**self._known.databases, stored.name: _Placed(stored, route)}
        self._advance(moment, databases, stored.name)

    async def has_updated(self, moment: Moment, stored: StoredDatabase) -> None:
        """Put a change of this replica in force that left the layout as it is, such as a hold.

        The routes in force are kept only if they are of this layout: fragments are admitted by
        them, and others may be written otherwise.
        """
        placed = await _placed(self._known.databases.get(stored.name), stored)
        self._advance(moment, {**self._known.databases, stored.name: placed}, stored.name)

    def has_removed(self, moment: Moment, name: str) -> None:
        databases = {n: placed for n, placed in self._known.databases.items() if n != name}
        self._advance(moment, databases, name)

    async def _look(self) -> None:
        if self._known.own or await self._catalogue.moment() != self._known.moment:
            await self.catch_up()

    def _advance(self, moment: Moment, databases: Mapping[str, _Placed], name: str) -> None:
        here, own = self._known.moment, self._known.own
        if moment.epoch == here.epoch + 1:
            self._adopt(_Followed(moment, databases, own))
        else:
            # Changes of others came between: the next look starts before them.
            self._adopt(_Followed(here, databases, own | {name}))

    def _adopt(self, known: _Followed) -> None:
        for name in {**self._known.databases, **known.databases}:
            before, after = self._known.databases.get(name), known.databases.get(name)
            if before is not after:
                held = _held(after)
                # A write may have resolved its route by the former model.
                self._calls.admission.refuse(_left(before, after) | held)
                self._calls.admission.admit(
                    set(fragments_of(after.route if after else None)) - held
                )
        self._known = known
        routes = {name: _route(placed) for name, placed in known.databases.items()}
        # It goes back if the catalogue was restored; an executor adopts no lower number.
        epoch = max(known.moment.epoch, self._executor.model.epoch)
        self._executor.adopt(RoutingModel(epoch, routes))


async def _after(before: _Followed, news: CatalogueSnapshot | Difference) -> _Followed:
    if isinstance(news, CatalogueSnapshot):
        changed, databases = news.databases, {}
    else:
        changed = {name: stored for name, stored in news.changed.items() if stored}
        kept = before.databases.items()
        databases = {name: placed for name, placed in kept if name not in news.changed}
    for name, stored in changed.items():
        databases[name] = await _placed(before.databases.get(name), stored)
    return _Followed(news.moment, databases)


def _route(placed: _Placed) -> DatabaseRoute:
    if placed.stored.hold is None:
        return placed.route
    return replace(placed.route, held=frozenset(placed.stored.hold.classes))


def _held(placed: _Placed | None) -> set[Fragment]:
    if placed is None or placed.stored.hold is None:
        return set()
    held = placed.stored.hold.classes
    return {f for f in fragments_of(placed.route) if f.class_name in held}


def _left(before: _Placed | None, after: _Placed | None) -> set[Fragment]:
    """Return the fragments of which the model in force does not read all: writes would be lost.

    They were held, unless this replica was away: then a write may still be on its way to one.
    """
    new = after.route if after else None
    old = fragments_of(before.route) if before else []
    return {f for f in old if not is_read_by(f, same_place(new, f))}


async def _placed(known: _Placed | None, stored: StoredDatabase) -> _Placed:
    """Return the routes of a database; the same objects as long as only a hold changes."""
    if known is not None and known.stored == replace(stored, hold=known.stored.hold):
        # Writes are refused by fragment: a new object for the same fragment would be admitted.
        return _Placed(stored, known.route)
    return _Placed(stored, await offload(True, route_of, stored))


class Coalesced:
    """Runs something for all callers, one run at a time.

    A caller gets a run that *started after its call*, since the present one may have read too
    early. All calls during a run share the next one, with its failure, so each waits for two runs
    at most. If the caller of a run is cancelled, the next caller starts another.
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
            # Else a run started and ended while this caller waited for the lock.
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
