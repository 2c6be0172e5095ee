"""Erasing what objects hold of fields that were dropped: in the background, in bounded steps.

Nobody can read these values any more, since no field has their stored name. So to remove them is no
write: no version rises, and nothing is reported. Every replica may do it, at any time and again; if
one ends, another begins anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeAlias

from mediator.base.clock import Clock
from mediator.catalogue.schemas import CatalogueSchemas
from mediator.catalogue.stored_databases import StoredDatabase
from mediator.control.follower import Follower
from mediator.control.layout import fragments_of, route_of
from mediator.control.membership import Membership
from mediator.data_plane.executor import Executor
from mediator.stores.port import Erasing, Fragment, StoreError
from mediator.stores.systems import Systems, unavailable

__all__ = ["ERASE_S", "PAGE", "Erasure", "classes_to_erase"]

ERASE_S: Final = 5.0
"""Seconds for which one run goes on."""

PAGE: Final = 200
"""Records of one step: other calls wait for it."""

_Location: TypeAlias = tuple[str, str, str]
"""The id of a database, the stored name of a class, the system."""


@dataclass(eq=False)
class Erasure:
    _catalogue: CatalogueSchemas
    _systems: Systems
    _executor: Executor
    _follower: Follower
    _membership: Membership
    _clock: Clock
    _reached: dict[_Location, str] = field(default_factory=dict, init=False)

    async def run(self) -> None:
        """Erase for some seconds, and note what is done.

        Raises:
            Unavailable: A system, the catalogue or a replica does not answer; the next run goes on.
            Conflict: Somebody changes the schema; the next run goes on.
        """
        pending = classes_to_erase(self._follower.all())
        if not pending:
            return
        # A replica that still knows a field may write to it.
        await self._membership.agree(self._executor.model.epoch)
        until = self._clock.monotonic() + ERASE_S
        for database, class_name in pending:
            stored = self._follower.stored(database)
            if stored is None or not await self._class(stored, class_name, until):
                return
            await self._note(stored, class_name)

    async def _class(self, stored: StoredDatabase, class_name: str, until: float) -> bool:
        """Erase what one class holds; False if there was no time for all of it."""
        names = tuple(stored.layout[class_name]["erasing"])
        for fragment in fragments_of(self._executor.model.databases[stored.name]):
            if fragment.class_name != class_name:
                continue
            if not await self._fragment(fragment, names, until):
                return False
        return True

    async def _fragment(self, fragment: Fragment, names: tuple[str, ...], until: float) -> bool:
        location = (fragment.database_id, fragment.stored_as, fragment.system)
        after = self._reached.pop(location, None)
        while (after := await self._step(fragment, names, after)) is not None:
            if self._clock.monotonic() >= until:
                self._reached[location] = after
                return False
        return True

    async def _step(
        self, fragment: Fragment, names: tuple[str, ...], after: str | None
    ) -> str | None:
        guarded = self._systems.get(fragment.system)
        store = guarded.store
        if not isinstance(store, Erasing):
            return None
        try:
            return await guarded.guarded(partial(store.erase, fragment, names, after, PAGE))
        except StoreError as error:
            raise unavailable(guarded, error, "write") from error

    async def _note(self, stored: StoredDatabase, class_name: str) -> None:
        erased = {**stored.layout[class_name], "erasing": []}
        layout = {**stored.layout, class_name: erased}
        moment, put = await self._catalogue.put_layout(
            replace(stored, layout=layout, hold=None), stored
        )
        self._follower.has_put(moment, put, route_of(put))


def classes_to_erase(databases: Iterable[StoredDatabase]) -> list[tuple[str, str]]:
    return [
        (stored.name, class_name)
        for stored in databases
        for class_name, layout in stored.layout.items()
        if layout.get("erasing")
    ]
