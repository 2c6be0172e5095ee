"""Deliveries of results into classes: a serving replica writes them under a separate lease.

The relaying process must not write objects: it does not keep caches coherent and takes no part in
schema changes. One of the serving replicas, which do, therefore holds the lease of these
deliveries.
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

_BATCH_RESULTS: Final = 500
_POLL_S: Final = 0.1
_REFRESH_S: Final = 0.25
"""How soon a new query or a schema change is noticed, in seconds."""

_FIRST_PAUSE_S: Final = 0.1
_MAX_PAUSE_S: Final = 5.0

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class ClassDeliveries:
    """Delivers the results of one database, given by its id, while it has the lease."""

    _context: HolderContext
    _database: str
    _admitted: Admitted

    async def run(self) -> None:
        """Deliver until the process is about to end, despite errors."""
        context, id_ = self._context, self._database
        name, description = f"standing-deliveries:{id_}", f"the deliveries of results of {id_}"
        holder = Holder(
            context.leases, context.replica, name, description, lambda: context.has_ended
        )
        await holder.run(lambda lease: _Deliveries(context, id_, self._admitted, lease).run())


class _Pause(NamedTuple):
    """A pause of a query's deliveries: how long, and until when by the monotonic clock (s)."""

    seconds: float
    until: float


@dataclass(eq=False)
class _Deliveries:
    """The deliveries under one lease."""

    _context: HolderContext
    _database: str
    _admitted: Admitted
    _lease: Lease
    _progress: dict[str, Delivery] = field(default_factory=dict, init=False)
    _destinations: Mapping[str, Destination] = field(default_factory=dict, init=False)
    _pauses: dict[str, _Pause] = field(default_factory=dict, init=False)
    _route: DatabaseRoute | None = field(default=None, init=False)
    _revision: int = field(default=0, init=False)
    _refreshed_at: float = field(default=float("-inf"), init=False)

    async def run(self) -> None:
        """Continue where the last holder ended, until the database is gone."""
        context = self._context
        while not context.has_ended:
            route = context.plane.model.by_id.get(self._database)
            if route is None:
                return
            await self._refresh(route)
            delivered = await concurrently(
                self._deliver(route, id_, into) for id_, into in self._destinations.items()
            )
            if not any(delivered):
                await asyncio.sleep(_POLL_S)

    async def _refresh(self, route: DatabaseRoute) -> None:
        """Refresh the queries periodically, and at once after a schema change."""
        now = self._context.clock.monotonic()
        if route is self._route and now - self._refreshed_at < _REFRESH_S:
            return
        self._refreshed_at = now
        results, id_ = self._context.results, self._database
        # Nobody else writes the progress, but the coordination Redis may roll back to an older
        # state.
        self._progress = await results.deliveries(id_)
        revision = (await results.published(id_)).revision
        if route is self._route and revision == self._revision:
            return
        # Stopped queries as well: their earlier results are not lost. But if a class has got
        # owners, not everybody may see even these.
        stored = (await results.queries(id_)).items()
        destinations = (
            (query, destination_of(definition.document))
            for query, definition in stored
            if closed_class(definition, route) is None
        )
        self._destinations = {
            query: into
            for query, into in destinations
            if into is not None
            and into.target.kind == "class"
            and into.target.name in route.classes
        }
        self._route, self._revision = route, revision

    async def _deliver(self, route: DatabaseRoute, query: str, into: Destination) -> bool:
        """Write due results; return whether more may be due."""
        progress, now = self._progress.get(query, Delivery()), self._context.clock.monotonic()
        if progress.is_refused or now < self._pauses.get(query, _NO_PAUSE).until:
            return False
        key = QueryKey(self._database, query)
        try:
            due = await self._context.results.results(
                key, ResultPosition(progress.done), _BATCH_RESULTS
            )
        except PositionGone:
            return False  # the holder of the queries notices it and stops this query
        if not due:
            return False
        written, error = await self._write(route, key, into, due)
        last = progress.done + written
        if isinstance(error, Invalid | NotFound | IdempotencyReused):
            if await is_outdated(self._context.plane, route):
                return True  # by the newer schema the class may accept it
            await self._note(key, Delivery(last, is_refused=True))
            return False
        if written:
            await self._note(key, Delivery(last))
        self._pause(query, error, now)
        return error is None

    async def _write(
        self,
        route: DatabaseRoute,
        key: QueryKey,
        into: Destination,
        due: Sequence[StoredResult],
    ) -> tuple[int, MediatorError | None]:
        """Create objects; return how many results were written, and why the next was not."""
        if into.target.name not in route.classes:
            return 0, NotFound(f"There is no class {into.target.name}.")
        creations, refusal = _creations_of(route, key, into, due)
        written = 0
        try:
            # Source objects may have got owners before this process knows of it.
            if await is_outdated(self._context.plane, route):
                return 0, None
            async with self._admitted(self._context.plane, route.schema.database) as plane:
                for answer in await plane.batch(creations):
                    # An object with this id is the result's, however clients have changed it.
                    if isinstance(answer, MediatorError) and not isinstance(answer, AlreadyExists):
                        raise answer
                    written += 1
        except MediatorError as error:
            return written, error
        return written, refusal

    async def _note(self, key: QueryKey, delivery: Delivery) -> None:
        await self._context.results.put_delivery(key, self._lease, delivery)
        self._progress[key.query] = delivery

    def _pause(self, query: str, error: MediatorError | None, now: float) -> None:
        """Pause a query after an error, each time twice as long; without one, end its pause."""
        former = self._pauses.pop(query, None)
        if error is None:
            return
        if former is None:  # once for each outage
            _log.warning("results of the standing query %s wait: %s", query, error.detail)
        seconds = _FIRST_PAUSE_S if former is None else 2 * former.seconds
        seconds = min(seconds, _MAX_PAUSE_S)
        self._pauses[query] = _Pause(seconds, now + seconds)


def _creations_of(
    route: DatabaseRoute, key: QueryKey, into: Destination, due: Sequence[StoredResult]
) -> tuple[list[Create], Invalid | None]:
    """Return the writes of results up to the first that the class refuses, and the reason."""
    creations: list[Create] = []
    for result in due:
        try:
            creations.append(creation_of(route, key, into, result))
        except Invalid as error:
            return creations, error
    return creations, None


_NO_PAUSE: Final = _Pause(0.0, float("-inf"))
