"""Erasure of dropped fields' values from objects: in the background, in bounded steps.

Nobody can read these values, since no field has their stored name any more. So their removal is not
a write: no version rises, and no event is reported. Every replica can do it, at any time and
repeatedly; if one stops, another starts over.
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
"""Maximum seconds of one run."""

_MIN_REMAINING_S: Final = 1.0
"""Minimum seconds for the remaining classes after a failure."""

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
    _progress: dict[_Location, tuple[_Names, str]] = field(default_factory=dict, init=False)
    """The names being erased, and the id after which the next step continues."""

    async def run(self) -> None:
        """Erase for some seconds, and record finished classes.

        A failed erasure is left to the next run, and does not delay any other.

        Raises:
            MediatorError: The first failure: a system, the catalogue or a replica does not answer,
                or somebody changes the schema.
        """
        if not classes_to_erase(self._follower.all()):
            return
        await self._follower.catch_up()
        # One snapshot: a replica may still write fields that are dropped after it.
        databases, model = self._follower.all(), self._executor.model
        # A replica whose model still has a field may write to it.
        await self._membership.agree(model.epoch)
        failures = await self._erase(
            {database.name: database for database in databases}, model.databases
        )
        if failures:
            raise failures[0]

    async def _erase(
        self, databases: dict[str, StoredDatabase], routes: Mapping[str, DatabaseRoute]
    ) -> list[MediatorError]:
        """Erase values of some databases within the time limit; returns the failures."""
        until = self._clock.monotonic() + ERASE_S
        failures: list[MediatorError] = []
        for name, class_name in classes_to_erase(databases.values()):
            names = tuple(databases[name].layout[class_name]["erasing"])
            try:
                if not await self._erase_class(routes[name], class_name, names, until):
                    break
                databases[name] = await self._record_erased(databases[name], class_name)
            except MediatorError as error:
                failures.append(error)
                # The failure does not use up the time of the other classes.
                until = max(until, self._clock.monotonic() + _MIN_REMAINING_S)
        return failures

    async def _erase_class(
        self, route: DatabaseRoute, class_name: str, names: _Names, until: float
    ) -> bool:
        """Erase the values of one class; False if the time ran out."""
        for fragment in fragments_of(route):
            if fragment.class_name != class_name:
                continue
            if not await self._erase_fragment(fragment, names, until):
                return False
        return True

    async def _erase_fragment(self, fragment: Fragment, names: _Names, until: float) -> bool:
        location = (fragment.database_id, fragment.stored_as, fragment.system)
        former_names, last_id = self._progress.get(location, (names, None))
        # For a field that was dropped since, earlier records hold values as well.
        after = last_id if former_names == names else None
        while (after := await self._erase_page(fragment, names, after)) is not None:
            self._progress[location] = (names, after)
            if self._clock.monotonic() >= until:
                return False
        self._progress.pop(location, None)
        return True

    async def _erase_page(self, fragment: Fragment, names: _Names, after: str | None) -> str | None:
        async def erase(store: Store) -> str | None:
            if not isinstance(store, Erasing):
                return None
            return await store.erase(fragment, names, after, PAGE)

        return await self._calls.on(fragment, "write", erase)

    async def _record_erased(self, stored: StoredDatabase, class_name: str) -> StoredDatabase:
        """Record that a class is erased, unless its layout has changed; returns its database."""
        erased = {**stored.layout[class_name], "erasing": []}
        layout = {**stored.layout, class_name: erased}
        _, put = await self._catalogue.put_layout(replace(stored, layout=layout, hold=None), stored)
        # Read again: the rest of the row may have changed since it was read.
        await self._follower.catch_up()
        return put


def classes_to_erase(databases: Iterable[StoredDatabase]) -> list[tuple[str, str]]:
    return [
        (stored.name, class_name)
        for stored in databases
        for class_name, layout in stored.layout.items()
        if layout["erasing"]
    ]
