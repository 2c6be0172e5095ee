"""Writing a backup while the installation is in use.

Objects are read page by page in the order of ids, as the systems hold them, each group with its
version. Nothing is stopped meanwhile, neither writes nor relays. What can come of that, for a write
W of an object that begins and ends while the backup runs:

- The object is read before W or after it: the backup has the one or the other state of each group.
  A group is in one record of one system, which is read as a whole, so its values are those of
  its version: a state that was.
- W writes groups on several systems, and they are read between: they are seen not to be of one
  write (`Outcome.partial`), and the object is read again until they are, before W or after it.
- W creates an object whose place was passed already, or deletes one that was read: the backup lacks
  the object, or still has it, as it was when its page was read.
- W is part of a transaction over several objects: the backup may have some of them as of before and
  some as of after. It is no snapshot of one moment.
- The schema is set: the backup ends with an error, as its objects would be of two schemas.

The position of the feed is taken first. Every change before it had taken effect when its object was
read, and every change after it has a version that shows whether the object has it already: who
loads the backup and follows the feed from there arrives at what the installation holds.

A backup that is killed has no manifest, and is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

from mediator.archive.files import (
    CATALOGUE,
    DatabasePart,
    FilePart,
    LinesFile,
    Manifest,
    begin_directory,
    class_file,
    write_manifest,
)
from mediator.base.clock import Clock
from mediator.base.errors import Conflict, NotFound, Unavailable
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.registrations import CatalogueSystems
from mediator.catalogue.rows import CatalogueRows
from mediator.catalogue.schemas import CatalogueSchemas
from mediator.catalogue.stored_databases import StoredDatabase
from mediator.changes.feed import Feed
from mediator.changes.subscriptions import Subscriptions
from mediator.control.plane import ControlPlane
from mediator.data_plane.port import DataPlane
from mediator.data_plane.walking import pages
from mediator.model.guard import WriteGuard
from mediator.model.operations import Get, Outcome
from mediator.routing.freshness import STRONG
from mediator.routing.model import ClassRoute

__all__ = ["ArchiveProgress", "Backup", "Installation", "OnProgress"]

_PAUSE_S: Final = 0.2
_TIMEOUT_S: Final = 120.0
"""A write over several systems whose process has died is resolved well within it."""


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


class Backup:
    """Writes backups of an installation."""

    def __init__(self, installation: Installation, on_progress: OnProgress) -> None:
        self._from = installation
        self._on_progress = on_progress

    async def write(self, directory: Path, databases: Sequence[str] | None = None) -> Manifest:
        """Write a backup of some databases, or of all.

        Raises:
            ArchiveInvalid: The directory is not empty.
            NotFound: There is no such database.
            Conflict: A schema was set meanwhile.
            Unavailable: A system, the catalogue or the feed does not answer.
            OSError: A file cannot be written.
        """
        stored = await self._stored(databases)
        begin_directory(directory)
        created = datetime.fromtimestamp(self._from.clock.now(), UTC).isoformat()
        parts = {d.name: await self._database(directory, d) for d in stored}
        with LinesFile(directory / CATALOGUE) as file:
            file.write(await CatalogueRows(self._from.catalogue).read())
            catalogue = file.finish()
        registered = await CatalogueSystems(self._from.catalogue).load()
        systems = {system.name: _statements(system.registration) for system in registered}
        if await self._stored([d.name for d in stored]) != stored:
            raise Conflict("A schema was set while the backup was written; it is none.")
        manifest = Manifest(created, catalogue, systems, parts)
        await asyncio.to_thread(write_manifest, directory, manifest)
        return manifest

    async def _stored(self, names: Sequence[str] | None) -> list[StoredDatabase]:
        found = (await CatalogueSchemas(self._from.catalogue).snapshot()).databases
        for name in names or ():
            if name not in found:
                raise NotFound(f"There is no database {name}.")
        return [d for name, d in sorted(found.items()) if names is None or name in names]

    async def _database(self, directory: Path, stored: StoredDatabase) -> DatabasePart:
        position = await self._from.position(stored.name)
        names = () if stored.document["mode"] == "advisory" else sorted(stored.document["classes"])
        files = {name: await self._class(directory, stored.name, name) for name in names}
        return DatabasePart(stored.document, stored.layout, position, files)

    async def _class(self, directory: Path, database: str, name: str) -> FilePart:
        route = await self._from.data.route(database, name)
        done = 0
        with LinesFile(directory / class_file(database, name)) as file:
            async for page in pages(self._from.data, database, name):
                objects = [o for o in [await self._whole(database, name, o) for o in page] if o]
                newest = max((v or 0 for o in objects for v in o.versions.values()), default=0)
                await asyncio.to_thread(file.write, [_line(route, o) for o in objects], newest)
                done += len(page)
                self._on_progress(ArchiveProgress("saved", database, name, done))
            return await asyncio.to_thread(file.finish)

    async def _whole(self, database: str, name: str, seen: Outcome) -> Outcome | None:
        """Wait for the parts of an object that are still being written; None: it is gone."""
        outcome = seen
        until = self._from.clock.monotonic() + _TIMEOUT_S
        while outcome.partial:
            if self._from.clock.monotonic() > until:
                raise Unavailable(f"{name}/{seen.id} is not resolved.", system=name)
            await asyncio.sleep(_PAUSE_S)
            try:
                outcome = await self._from.data.read(Get(database, name, seen.id), STRONG)
            except NotFound:
                return None
        return outcome


def _line(route: ClassRoute, outcome: Outcome) -> dict[str, Any]:
    versions = {group: v for group, v in outcome.versions.items() if v is not None}
    values = route.codec.encode(outcome.values or {})
    return {"id": outcome.id, "versions": versions, "values": values}


def _statements(registration: dict[str, Any]) -> dict[str, Any]:
    """Return an operator's statements about a system, without its address and its password."""
    return {
        "kind": registration["config"]["kind"],
        "declared": registration["declared"],
        "metrics": registration["metrics"],
    }
