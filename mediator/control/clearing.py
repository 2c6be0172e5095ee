"""Clearing what dropped databases have left in systems, and in what replicas share.

The feed of a database, its message flows, incremental views, event streams and what is known of its
copies go by its id, and what systems hold of it by the generations of its classes. So no later
database of its name ever meets any of that, and it can be removed at any time: when the database is
dropped, and again for a while, as a replica that has not read of it yet may leave something once
more, and a system may not have answered.
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
    """What replicas share of databases."""

    async def clear(self, database: str) -> None:
        """Remove all of a database, given by its id; raises `Unavailable`."""


class Clearing:
    """Clears dropped databases; nothing is left of one on a system that is gone."""

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
                run does it.
        """
        failure: Unavailable | None = None
        for database in await self._catalogue.dropped():
            try:
                await self._clear(database)
            except Unavailable as error:
                failure = error  # the others are cleared all the same
        if failure is not None:
            raise failure

    async def _clear(self, database: StoredDatabase) -> None:
        route = route_of(database)
        for fragment in (*fragments_of(route), *copies_of(route)):
            await self._drop(fragment)
        for each in self._shared:
            await each.clear(database.id)
        await self._catalogue.forget_dropped(database.id)

    async def _drop(self, fragment: Fragment) -> None:
        if self._systems.find(fragment.system) is not None:
            await self._calls.on(fragment, "write", lambda store: store.drop(fragment))
