"""Results that go into classes: written by a replica that serves, under a lease of its own.

The process that relays must not write objects. It keeps no copies in caches coherent, and does not
take part in changes of schemas. So one of the replicas that do has the lease of these deliveries.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mediator.base.concurrency import concurrently
from mediator.base.errors import AlreadyExists, IdempotencyReused, Invalid, MediatorError, NotFound
from mediator.base.holding import Holder
from mediator.base.lease import Lease
from mediator.changes.feed import PositionGone
from mediator.data_plane.port import Admitted, is_outdated
from mediator.model.operations import Create
from mediator.model.result_position import ResultPosition
from mediator.routing.model import DatabaseRoute
from mediator.standing.closed import closed_class
from mediator.standing.context import HolderContext
from mediator.standing.destination_parser import destination_of
from mediator.standing.query import Destination
from mediator.standing.result_objects import creation_of
from mediator.standing.results import Delivery, QueryKey, StoredResult

__all__ = ["ClassDeliveries"]

_AT_ONCE: Final = 500
_POLL_S: Final = 0.1
_LOOK_S: Final = 0.25
"""How soon a new query, and another schema, is seen."""

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class ClassDeliveries:
    """Delivers the results of one database, given by its id, whenever it gets the lease."""

    _context: HolderContext
    _database: str
    _admitted: Admitted

    async def run(self) -> None:
        """Deliver until the process is about to end, whatever happens."""
        context, id_ = self._context, self._database
        name, held = f"standing-deliveries:{id_}", f"the deliveries of results of {id_}"
        holder = Holder(context.leases, context.replica, name, held, lambda: context.has_ended)
        await holder.run(lambda lease: _Deliveries(context, id_, self._admitted, lease).run())


class _Pause(NamedTuple):
    """Of a query whose results wait: how long, and until when by the monotonic clock (s)."""

    seconds: float
    until: float


@dataclass(eq=False)
class _Deliveries:
    """What is delivered under one lease."""

    _context: HolderContext
    _database: str
    _admitted: Admitted
    _lease: Lease
    _at: dict[str, Delivery] = field(default_factory=dict, init=False)
    _into: Mapping[str, Destination] = field(default_factory=dict, init=False)
    _pauses: dict[str, _Pause] = field(default_factory=dict, init=False)
    _route: DatabaseRoute | None = field(default=None, init=False)
    _revision: int = field(default=0, init=False)
    _looked_at: float = field(default=float("-inf"), init=False)

    async def run(self) -> None:
        """Continue where the last holder has ended, until the database is gone."""
        context = self._context
        while not context.has_ended:
            route = context.plane.model.by_id.get(self._database)
            if route is None:
                return
            await self._look(route)
            delivered = await concurrently(
                self._deliver(route, id_, into) for id_, into in self._into.items()
            )
            if not any(delivered):
                await asyncio.sleep(_POLL_S)

    async def _look(self, route: DatabaseRoute) -> None:
        """Look now and then for queries that came and went, and at once for another schema."""
        now = self._context.clock.monotonic()
        if route is self._route and now - self._looked_at < _LOOK_S:
            return
        self._looked_at = now
        results, id_ = self._context.results, self._database
        # Nobody else writes it down, but the coordination Redis may return to an older state.
        self._at = await results.deliveries(id_)
        revision = (await results.published(id_)).revision
        if route is self._route and revision == self._revision:
            return
        # Those that are stopped, too: what they have found until then is not lost. But of a class
        # that got owners not even that is for everybody.
        stored = (await results.queries(id_)).items()
        known = (
            (query, destination_of(each.document))
            for query, each in stored
            if closed_class(each, route) is None
        )
        self._into = {
            query: into
            for query, into in known
            if into is not None
            and into.target.kind == "class"
            and into.target.name in route.classes
        }
        self._route, self._revision = route, revision

    async def _deliver(self, route: DatabaseRoute, query: str, into: Destination) -> bool:
        """Write what is due; return whether there may be more."""
        at, now = self._at.get(query, Delivery()), self._context.clock.monotonic()
        if at.is_refused or now < self._pauses.get(query, _NO_PAUSE).until:
            return False
        key = QueryKey(self._database, query)
        try:
            due = await self._context.results.results(key, ResultPosition(at.done), _AT_ONCE)
        except PositionGone:
            return False  # the holder of the queries sees it, and stops this one
        if not due:
            return False
        taken, error = await self._write(route, key, into, due)
        done = at.done + taken
        if isinstance(error, Invalid | NotFound | IdempotencyReused):
            if await is_outdated(self._context.plane, route):
                return True  # by the newer schema the class may take it
            await self._note(key, Delivery(done, is_refused=True))
            return False
        if taken:
            await self._note(key, Delivery(done))
        self._pause(query, error, now)
        return error is None

    async def _write(
        self,
        route: DatabaseRoute,
        key: QueryKey,
        into: Destination,
        due: Sequence[StoredResult],
    ) -> tuple[int, MediatorError | None]:
        """Create objects; return how many results have theirs, and why the next one has not."""
        if into.target.name not in route.classes:
            return 0, NotFound(f"There is no class {into.target.name}.")
        creations, refusal = _creations_of(route, key, into, due)
        taken = 0
        try:
            # Objects that results are of may have got owners before this process knows of it.
            if await is_outdated(self._context.plane, route):
                return 0, None
            async with self._admitted(self._context.plane, route.schema.database) as plane:
                for answer in await plane.batch(creations):
                    # An object that has the id is the result's, whatever clients made of it.
                    if isinstance(answer, MediatorError) and not isinstance(answer, AlreadyExists):
                        raise answer
                    taken += 1
        except MediatorError as error:
            return taken, error
        return taken, refusal

    async def _note(self, key: QueryKey, delivery: Delivery) -> None:
        await self._context.results.put_delivery(key, self._lease, delivery)
        self._at[key.query] = delivery

    def _pause(self, query: str, error: MediatorError | None, now: float) -> None:
        """Let a query wait after an error, each time twice as long, and end its pause without."""
        before = self._pauses.pop(query, None)
        if error is None:
            return
        if before is None:  # once for each outage
            _log.warning("results of the standing query %s wait: %s", query, error.detail)
        seconds = _FIRST_PAUSE_S if before is None else 2 * before.seconds
        seconds = min(seconds, _LONGEST_PAUSE_S)
        self._pauses[query] = _Pause(seconds, now + seconds)


def _creations_of(
    route: DatabaseRoute, key: QueryKey, into: Destination, due: Sequence[StoredResult]
) -> tuple[list[Create], Invalid | None]:
    """Return the writes of results up to the first that the class refuses, and why it does."""
    creations: list[Create] = []
    for each in due:
        try:
            creations.append(creation_of(route, key, into, each))
        except Invalid as error:
            return creations, error
    return creations, None


_NO_PAUSE: Final = _Pause(0.0, float("-inf"))
