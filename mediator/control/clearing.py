"""Removes dropped databases from systems, and from the state that replicas share.

The feed of a database, its message flows, incremental views, event streams and the state of its
copies are stored by its id, and its data in systems by the generations of its classes. So no later
database of the same name meets any of it, and it can be removed at any time: when the database is
dropped, and again for a while, since a replica that has not read of the drop can write more, and a
system may not have answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mediator.base.errors import Unavailable
from mediator.catalogue.schemas import CatalogueSchemas
from mediator.catalogue.stored_databases import StoredDatabase
from mediator.control.layout import copies_of, fragments_of, route_of
from mediator.operations.fragment_calls import FragmentCalls
from mediator.stores.port import Fragment
from mediator.stores.systems import Systems

__all__ = ["Clearing"]


class Clearable(Protocol):
    """State of databases that replicas share."""

    async def clear(self, database: str) -> None:
        """Remove all state of a database, given by its id; raises `Unavailable`."""


class Clearing:
    """Clears dropped databases; on a removed system, nothing remains to be cleared."""

    def __init__(
        self,
        catalogue: CatalogueSchemas,
        systems: Systems,
        shared: Sequence[Clearable],
    ) -> None:
        self._catalogue = catalogue
        self._systems, self._calls = systems, FragmentCalls(systems)
        self._shared = shared

    async def run(self) -> None:
        """Clear all dropped databases.

        Raises:
            Unavailable: The catalogue, a system or the coordination Redis does not answer; the next
                run retries.
        """
        failure: Unavailable | None = None
        for database in await self._catalogue.dropped():
            try:
                await self._clear(database)
            except Unavailable as error:
                failure = error  # the other databases are cleared nevertheless
        if failure is not None:
            raise failure

    async def _clear(self, database: StoredDatabase) -> None:
        route = route_of(database)
        for fragment in (*fragments_of(route), *copies_of(route)):
            await self._drop(fragment)
        for state in self._shared:
            await state.clear(database.id)
        await self._catalogue.forget_dropped(database.id)

    async def _drop(self, fragment: Fragment) -> None:
        if self._systems.find(fragment.system) is not None:
            await self._calls.on(fragment, "write", lambda store: store.drop(fragment))
