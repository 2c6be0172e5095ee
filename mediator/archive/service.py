"""Backups and their restoration, put together for one mediator."""

from __future__ import annotations

from mediator.archive.backup import Backup, BackupSources, OnProgress
from mediator.archive.restore import Restoration, RestoreTargets
from mediator.base.clock import Clock
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.registrations import CatalogueSystems
from mediator.catalogue.rows import CatalogueRows
from mediator.catalogue.schemas import CatalogueSchemas
from mediator.changes.feed import Feed
from mediator.changes.subscriptions import Subscriptions
from mediator.control.plane import ControlPlane
from mediator.data_plane.port import DataPlane
from mediator.model.guard import WriteGuard

__all__ = ["Archive"]


class Archive:
    """Makes what writes and restores backups.

    Args:
        catalogue: The catalogue.
        data: Objects.
        control: Schemas.
        feed: The feeds; None: there are none.
        guard: The guard of caches; invalidates copies of a class.
        clock: The time.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        data: DataPlane,
        control: ControlPlane,
        feed: Feed | None,
        guard: WriteGuard,
        clock: Clock,
    ) -> None:
        self._catalogue = catalogue
        self._data = data
        self._control = control
        self._feed = feed
        self._guard = guard
        self._clock = clock

    def backup(self, on_progress: OnProgress) -> Backup:
        """Return what writes backups; `on_progress` is called with the progress."""
        sources = BackupSources(
            self._data,
            CatalogueSchemas(self._catalogue),
            CatalogueSystems(self._catalogue),
            CatalogueRows(self._catalogue),
            self._position,
            self._clock,
        )
        return Backup(sources, on_progress)

    def restoration(self, on_progress: OnProgress) -> Restoration:
        """Return what restores backups; `on_progress` is called with the progress."""
        rows = CatalogueRows(self._catalogue)
        targets = RestoreTargets(
            self._data, self._control, rows, self._guard, self._renew_feed, self._clock
        )
        return Restoration(targets, on_progress)

    async def _position(self, database: str) -> str | None:
        if self._feed is None:
            return None
        return (await Subscriptions(self._feed).now(self._id_of(database))).text

    async def _renew_feed(self, database: str) -> None:
        if self._feed is not None:
            await self._feed.start_generation(self._id_of(database))

    def _id_of(self, database: str) -> str:
        return self._data.model.databases[database].id
