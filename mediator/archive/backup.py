"""Writes a backup while the installation is in use; its contents: docs/backup.md.

Objects are read page by page in the order of ids, as the systems hold them, each group with its
version. Neither writes nor relays are stopped: a backup is not a snapshot of one moment.

The position of the feed is taken first. Every change before it had taken effect when its object was
read, and every change after it has a version that shows whether the object has it already. So a
reader that loads the backup and follows the feed from there arrives at the state of the
installation.

A backup that is killed has no manifest, and is invalid.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

from mediator.archive.files import (
    CATALOGUE,
    DatabasePart,
    FilePart,
    LinesFile,
    LineTooLong,
    Manifest,
    class_file,
    create_directory,
    history_file,
    write_manifest,
)
from mediator.archive.schema_history import save_history
from mediator.base.clock import Clock
from mediator.base.errors import Conflict, NotFound, Unavailable
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.registrations import CatalogueSystems
from mediator.catalogue.rows import CatalogueRows
from mediator.catalogue.schemas import CatalogueSchemas
from mediator.catalogue.stored_databases import StoredDatabase
from mediator.changes.feed import Feed
from mediator.changes.subscriptions import Subscriptions
from mediator.control.coordination_binding import CoordinationBinding
from mediator.control.layout import overrides_of
from mediator.control.plane import ControlPlane
from mediator.data_plane.port import DataPlane, pages
from mediator.model.guard import WriteGuard
from mediator.model.operations import Get, Outcome
from mediator.routing.freshness import STRONG
from mediator.routing.model import ClassRoute
from mediator.schema.overrides import in_force

__all__ = ["ArchiveProgress", "Backup", "Installation", "OnProgress"]

_PAUSE_S: Final = 0.2
_TIMEOUT_S: Final = 120.0
"""A write over several systems whose process has died is resolved well within this time."""


@dataclass(frozen=True, slots=True)
class ArchiveProgress:
    """Progress of a backup or a restoration with a class: objects done so far."""

    what: str
    database: str
    class_name: str
    done: int


OnProgress: TypeAlias = Callable[[ArchiveProgress], object]


@dataclass(frozen=True, slots=True)
class Installation:
    """Objects, schemas and the rest of the catalogue.

    Feed and binding are None without a coordination Redis.
    """

    catalogue: Catalogue
    data: DataPlane
    control: ControlPlane
    feed: Feed | None
    binding: CoordinationBinding | None
    guard: WriteGuard
    clock: Clock

    async def position(self, database: str) -> str | None:
        """Return the present position of a database's feed; None: there is no feed.

        Raises:
            BoundToAnother: The coordination Redis is another installation's by now.
            Unavailable: It does not answer.
        """
        if self.feed is None or self.binding is None:
            return None
        await self.binding.renew()  # a backup takes long, and checks it at no other time
        return (await Subscriptions(self.feed).now(self.id_of(database))).text

    async def start_feed_generation(self, database: str) -> None:
        if self.feed is not None:
            await self.feed.start_generation(self.id_of(database))

    def id_of(self, database: str) -> str:
        return self.data.model.databases[database].id


@dataclass(eq=False)
class Backup:
    _from: Installation
    _on_progress: OnProgress

    async def write(self, directory: Path, databases: Sequence[str] | None = None) -> Manifest:
        """Write a backup of some databases, or of all.

        Raises:
            ArchiveInvalid: The directory is not empty.
            NotFound: There is no such database.
            Conflict: A schema was set meanwhile, or an object is too long for a line.
            BoundToAnother: The coordination Redis is another installation's by now.
            Unavailable: A system, the catalogue or the feed does not answer.
            OSError: A file cannot be written.
        """
        stored = await self._stored(databases)
        create_directory(directory)
        created = datetime.fromtimestamp(self._from.clock.now(), UTC).isoformat()
        entries = {d.name: await self._write_database(directory, d) for d in stored}
        with LinesFile(directory / CATALOGUE) as file:
            file.write(await CatalogueRows(self._from.catalogue).read())
            catalogue = file.finish()
        registered = await CatalogueSystems(self._from.catalogue).load()
        systems = {system.name: _statements(system.registration) for system in registered}
        # With another schema, the objects read may lack classes. Layouts can differ: values of
        # dropped fields are erased meanwhile.
        present = await self._stored([d.name for d in stored])
        if [(d.id, d.version) for d in present] != [(d.id, d.version) for d in stored]:
            raise Conflict("A schema was set while the backup was written; the backup is invalid.")
        manifest = Manifest(created, catalogue, systems, entries)
        await asyncio.to_thread(write_manifest, directory, manifest)
        return manifest

    async def _stored(self, names: Sequence[str] | None) -> list[StoredDatabase]:
        databases = (await CatalogueSchemas(self._from.catalogue).snapshot()).databases
        for name in names or ():
            if name not in databases:
                raise NotFound(f"There is no database {name}.")
        return [d for name, d in sorted(databases.items()) if names is None or name in names]

    async def _write_database(self, directory: Path, stored: StoredDatabase) -> DatabasePart:
        position = await self._from.position(stored.name)
        path = directory / history_file(stored.name)
        history = await save_history(self._from.catalogue, path, stored)
        names = () if stored.document["mode"] == "advisory" else sorted(stored.document["classes"])
        files = {name: await self._write_class(directory, stored.name, name) for name in names}
        overrides = in_force(overrides_of(stored), self._from.clock.now())
        return DatabasePart(stored.document, stored.layout, position, files, overrides, history)

    async def _write_class(self, directory: Path, database: str, name: str) -> FilePart:
        route = await self._from.data.route(database, name)
        count = 0
        with LinesFile(directory / class_file(database, name)) as file:
            async for page in pages(self._from.data, database, name):
                objects = [
                    o for o in [await self._read_complete(database, name, o) for o in page] if o
                ]
                newest = max((v or 0 for o in objects for v in o.versions.values()), default=0)
                lines = [_line(route, o) for o in objects]
                try:
                    await asyncio.to_thread(file.write, lines, newest)
                except LineTooLong as error:
                    id_ = objects[error.index].id
                    raise Conflict(f"{database}/{name}/{id_} cannot be saved: {error}") from error
                count += len(page)
                self._on_progress(ArchiveProgress("saved", database, name, count))
            return await asyncio.to_thread(file.finish)

    async def _read_complete(self, database: str, name: str, first: Outcome) -> Outcome | None:
        """Wait for a pending write to reach all fragments of an object; None: it is deleted."""
        outcome = first
        until = self._from.clock.monotonic() + _TIMEOUT_S
        with suppress(NotFound):
            while outcome.partial:
                if self._from.clock.monotonic() > until:
                    raise Unavailable(f"{name}/{first.id} is not resolved.", system=name)
                await asyncio.sleep(_PAUSE_S)
                outcome = await self._from.data.read(Get(database, name, first.id), STRONG)
            return outcome
        return None


def _line(route: ClassRoute, outcome: Outcome) -> dict[str, Any]:
    versions = {group: v for group, v in outcome.versions.items() if v is not None}
    values = route.codec.encode(outcome.values or {})
    return {"id": outcome.id, "versions": versions, "values": values}


def _statements(registration: dict[str, Any]) -> dict[str, Any]:
    """Return an operator's statements about a system, without address and password."""
    statements = {name: registration[name] for name in ("declared", "metrics")}
    return {"kind": registration["config"]["kind"], **statements}
