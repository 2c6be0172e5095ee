"""Erasing what objects hold of fields that were dropped: in the background, in bounded steps.

Nobody can read these values any more, since no field has their stored name. So to remove them is no
write: no version rises, and nothing is reported. Every replica may do it, at any time and again; if
one ends, another begins anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from mediator.base.clock import Clock
from mediator.base.errors import MediatorError
from mediator.catalogue.schemas import CatalogueSchemas
from mediator.catalogue.stored_databases import StoredDatabase
from mediator.control.follower import Follower
from mediator.control.layout import fragments_of
from mediator.control.membership import Membership
from mediator.data_plane.executor import Executor
from mediator.operations.fragment_calls import FragmentCalls
from mediator.routing.model import DatabaseRoute
from mediator.stores.port import Erasing, Fragment, Store

__all__ = ["ERASE_S", "PAGE", "Erasure", "classes_to_erase"]

ERASE_S: Final = 5.0
"""Seconds for which one run goes on."""

_LEFT_S: Final = 1.0
"""That others have for themselves after a failure."""

PAGE: Final = 200
"""Records of one step: other calls wait for it."""

_Location: TypeAlias = tuple[str, str, str]
"""The id of a database, the stored name of a class, the system."""

_Names: TypeAlias = tuple[str, ...]


@dataclass(eq=False)
class Erasure:
    _catalogue: CatalogueSchemas
    _calls: FragmentCalls
    _executor: Executor
    _follower: Follower
    _membership: Membership
    _clock: Clock
    _reached: dict[_Location, tuple[_Names, str]] = field(default_factory=dict, init=False)
    """What was being erased, and where the next step goes on."""

    async def run(self) -> None:
        """Erase for some seconds, and note what is done.

        What cannot be erased now is left to the next run, and keeps nothing else waiting.

        Raises:
            MediatorError: The first failure: a system, the catalogue or a replica does not answer,
                or somebody changes the schema.
        """
        if not classes_to_erase(self._follower.all()):
            return
        await self._follower.catch_up()
        # All of one moment: what is dropped after it, a replica may still write.
        databases, model = self._follower.all(), self._executor.model
        # A replica that still knows a field may write to it.
        await self._membership.agree(model.epoch)
        failures = await self._erase({each.name: each for each in databases}, model.databases)
        if failures:
            raise failures[0]

    async def _erase(
        self, databases: dict[str, StoredDatabase], routes: Mapping[str, DatabaseRoute]
    ) -> list[MediatorError]:
        """Erase what some databases hold, as far as there is time; returns what failed."""
        until = self._clock.monotonic() + ERASE_S
        failures: list[MediatorError] = []
        for name, class_name in classes_to_erase(databases.values()):
            names = tuple(databases[name].layout[class_name]["erasing"])
            try:
                if not await self._class(routes[name], class_name, names, until):
                    break
                databases[name] = await self._note(databases[name], class_name)
            except MediatorError as error:
                failures.append(error)
                # The time until it failed was not that of the others.
                until = max(until, self._clock.monotonic() + _LEFT_S)
        return failures

    async def _class(
        self, route: DatabaseRoute, class_name: str, names: _Names, until: float
    ) -> bool:
        """Erase what one class holds; False if there was no time for all of it."""
        for fragment in fragments_of(route):
            if fragment.class_name != class_name:
                continue
            if not await self._fragment(fragment, names, until):
                return False
        return True

    async def _fragment(self, fragment: Fragment, names: _Names, until: float) -> bool:
        location = (fragment.database_id, fragment.stored_as, fragment.system)
        former, reached = self._reached.get(location, (names, None))
        # Of a field that was dropped since, the records before hold values as well.
        after = reached if former == names else None
        while (after := await self._step(fragment, names, after)) is not None:
            self._reached[location] = (names, after)
            if self._clock.monotonic() >= until:
                return False
        self._reached.pop(location, None)
        return True

    async def _step(self, fragment: Fragment, names: _Names, after: str | None) -> str | None:
        async def erase(store: Store) -> str | None:
            if not isinstance(store, Erasing):
                return None
            return await store.erase(fragment, names, after, PAGE)

        return await self._calls.on(fragment, "write", erase)

    async def _note(self, stored: StoredDatabase, class_name: str) -> StoredDatabase:
        """Note that a class is erased, unless its layout has changed; returns its database."""
        erased = {**stored.layout[class_name], "erasing": []}
        layout = {**stored.layout, class_name: erased}
        _, put = await self._catalogue.put_layout(replace(stored, layout=layout, hold=None), stored)
        # Read again: what is no layout may have been changed since it was read.
        await self._follower.catch_up()
        return put


def classes_to_erase(databases: Iterable[StoredDatabase]) -> list[tuple[str, str]]:
    return [
        (stored.name, class_name)
        for stored in databases
        for class_name, layout in stored.layout.items()
        if layout["erasing"]
    ]
