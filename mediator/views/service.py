"""Incremental views of an installation: definitions, results and holders."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from mediator.base.errors import Conflict, NotFound, Unavailable
from mediator.base.holding import Holders
from mediator.base.periodic_tasks import PeriodicTask
from mediator.routing.model import DatabaseRoute
from mediator.views.holder import HolderContext, ViewHolder
from mediator.views.results import Result, StoredDelta, StoredView, ViewKey, ViewResults
from mediator.views.view import View

__all__ = ["MAX_VIEWS", "IncrementalViews", "view_document"]

MAX_VIEWS: Final = 10_000
"""Maximum views of a database."""

_RECONCILE_EVERY_S: Final = 0.5


@dataclass(eq=False)
class IncrementalViews:
    """Serves views, whichever replica holds them."""

    _context: HolderContext
    _holders: Holders[str] = field(default_factory=Holders, init=False)

    def relaying_tasks(self) -> list[PeriodicTask]:
        """Return the periodic tasks of the process that relays, which evaluates views as well."""
        task = PeriodicTask("reconcile holders of views", _RECONCILE_EVERY_S, self.reconcile)
        return [task]

    @property
    def _results(self) -> ViewResults:
        return self._context.results

    async def create(self, database: DatabaseRoute, view: View) -> str:
        """Store a view, which is evaluated from now on; return its id.

        Raises:
            Conflict: The database has too many views.
        """
        key = ViewKey(database.id, uuid4().hex)
        created = datetime.fromtimestamp(self._context.clock.now(), UTC)
        if not await self._results.put_view(key, view, MAX_VIEWS, created):
            raise Conflict(f"A database has {MAX_VIEWS:,} incremental views at most.")
        return key.view

    async def of_database(self, database: DatabaseRoute) -> dict[str, StoredView]:
        """Return the views of a database by id."""
        return await self._results.views(database.id, await self._results.ids(database.id))

    async def find(self, database: DatabaseRoute, view: str) -> StoredView:
        """Raises `NotFound`."""
        stored = await self._results.view(ViewKey(database.id, view))
        if stored is None:
            raise _not_found()
        return stored

    async def drop(self, database: DatabaseRoute, view: str) -> None:
        """Remove a view with its result; raises `NotFound`."""
        if not await self._results.drop_view(ViewKey(database.id, view)):
            raise _not_found()

    async def result(self, database: DatabaseRoute, view: str) -> Result:
        """Return the result of a view that is not stopped; raises `Unavailable` if it builds."""
        stored = await self._results.result(ViewKey(database.id, view))
        if stored is None:
            raise _building()
        return stored

    async def last_delta(self, database: DatabaseRoute, view: str) -> str:
        """Return the id of the last delta of a view; raises `Unavailable` if it builds."""
        delta = await self._results.last_delta(ViewKey(database.id, view))
        if delta is None:
            raise _building()
        return delta

    async def deltas(
        self, database: DatabaseRoute, view: str, after: str, limit: int, wait_s: float
    ) -> list[StoredDelta]:
        """Return deltas after one, waiting for the first; raises `PositionGone`."""
        return await self._results.deltas(ViewKey(database.id, view), after, limit, wait_s)

    async def reconcile(self) -> None:
        """Start holders of databases that have views, cancel holders of removed databases."""
        routes = self._context.plane.model.by_id
        database_ids = {id_ for id_ in await self._results.databases() if id_ in routes}
        await self._holders.reconcile(
            database_ids, lambda id_: ViewHolder(self._context, id_).run()
        )

    async def close(self) -> None:
        """End all subscriptions, upon which holders end."""
        self._context.subscriptions.end()
        await self._holders.close()


def view_document(id_: str, stored: StoredView) -> dict[str, Any]:
    """Return a view with its state as JSON."""
    name, detail = stored.document.get("name", ""), stored.state.detail
    document = {"id": id_, "name": name, "state": stored.state.name}
    return {**document, "detail": detail} if detail else document


def _building() -> Unavailable:
    return Unavailable("The view is not built yet.", system="coordination")


def _not_found() -> NotFound:
    return NotFound("There is no such incremental view.")
