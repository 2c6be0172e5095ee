"""The installation that is backed up, or that a backup is restored to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from mediator.base.clock import Clock
from mediator.catalogue.connection import Catalogue
from mediator.changes.feed import Feed
from mediator.changes.subscriptions import Subscriptions
from mediator.control.plane import ControlPlane
from mediator.data_plane.port import DataPlane
from mediator.model.guard import WriteGuard

__all__ = ["ArchiveProgress", "Installation", "OnProgress"]


@dataclass(frozen=True, slots=True)
class ArchiveProgress:
    """How far a backup or a restoration is with a class: objects done so far."""

    what: str
    database: str
    class_name: str
    done: int


OnProgress: TypeAlias = Callable[[ArchiveProgress], object]


@dataclass(frozen=True, slots=True)
class Installation:
    """Objects, schemas and the rest of the catalogue; the feed is None where there is none."""

    catalogue: Catalogue
    data: DataPlane
    control: ControlPlane
    feed: Feed | None
    guard: WriteGuard
    clock: Clock

    async def position(self, database: str) -> str | None:
        """Return the present position of a database's feed as text; None: there is no feed."""
        if self.feed is None:
            return None
        return (await Subscriptions(self.feed).now(self.id_of(database))).text

    async def start_feed_generation(self, database: str) -> None:
        """Begin another generation of a database's feed."""
        if self.feed is not None:
            await self.feed.start_generation(self.id_of(database))

    def id_of(self, database: str) -> str:
        """Return the id of a database in the catalogue."""
        return self.data.model.databases[database].id
