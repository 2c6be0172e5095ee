"""Restoring a backup.

Objects are put as any writer would put them: through the data plane, into whatever systems hold
their fields now. So each gets a version that is above the one it had, in the backup and in the
store; caches, the change feed and materialised views follow. No version is ever lowered or given
twice, and nothing but the data plane needs to know how records are laid out.

No write invalidates objects that a store *has lost*: one that came back empty has lost those
written after the backup, and caches may hold copies with a version that nothing will exceed. So
before anything is put, the classes are invalidated in the sketch, and all of them is revalidated
until no such copy is left; and the feed starts another generation, as it has lost changes.

A restoration that is killed has put some of the objects. Nothing records that; it is started again
with `force`, and does the same again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mediator.archive.files import read_lines, read_manifest, verify
from mediator.archive.filling import ClassTarget, Restored
from mediator.archive.installation import Installation, OnProgress
from mediator.archive.model import CATALOGUE, DatabasePart, Manifest, class_file
from mediator.base.errors import Conflict, NotFound
from mediator.catalogue.rows import CatalogueRows

__all__ = ["Restoration"]

SKEW_S: Final = 60.0
"""How far clocks of machines may be apart; that versions rise is looked at with each object."""

_US: Final = 1_000_000


class Restoration:
    """Restores backups to an installation."""

    def __init__(self, installation: Installation, on_progress: OnProgress) -> None:
        self._to = installation
        self._on_progress = on_progress

    async def run(
        self,
        directory: Path,
        databases: Sequence[str] | None = None,
        *,
        dry_run: bool = False,
        force: bool = False,
    ) -> Restored:
        """Restore some databases of a backup, or all.

        Args:
            directory: The backup.
            databases: Which; None: all.
            dry_run: Only check the backup, and say what would be done.
            force: Overwrite databases that are there: what the backup has not got is deleted.

        Raises:
            ArchiveInvalid: There is no backup, or it is damaged; nothing was done.
            NotFound: The backup has no such database.
            Conflict: A database is there already, or the clock is behind the backup's.
            Unplaceable: No system here serves a node of a schema; nothing was done.
            DataWouldMove: A schema would move what is there; nothing was done.
            Unavailable: A system, the catalogue, the sketch or the feed does not answer.
        """
        manifest = await asyncio.to_thread(read_manifest, directory)
        for name, file in manifest.files().items():
            await asyncio.to_thread(verify, directory, name, file)
        self._check_clock(manifest)
        chosen = _chosen(manifest, databases)
        report = await self._plan(chosen, force=force or dry_run)
        documents = await self._documents(chosen)
        await self._to.control.place(documents, manifest.systems)
        if dry_run:
            report.put = sum(f.lines for part in chosen.values() for f in part.classes.values())
            report.rows = manifest.catalogue.lines
            return report
        await self._to.control.add_statements(manifest.systems)
        for name, document in documents.items():
            await self._to.control.set_schema(name, document)
        rows = await asyncio.to_thread(lambda: list(read_lines(directory / CATALOGUE)))
        ids = {name: self._to.id_of(name) for name in chosen}
        report.rows = await CatalogueRows(self._to.catalogue).add(rows, ids)
        for name, part in chosen.items():
            await self._database(directory, name, part, report)
        return report

    def _check_clock(self, manifest: Manifest) -> None:
        newest = max((file.newest for file in manifest.files().values()), default=0)
        if newest > (self._to.clock.now() + SKEW_S) * _US:
            raise Conflict(
                "The backup has versions from the future: the clock of this machine is behind. "
                "Versions given from now on could be some that were given before."
            )

    async def _plan(self, chosen: dict[str, DatabasePart], *, force: bool) -> Restored:
        there = {database["name"] for database in await self._to.control.databases()}
        report = Restored(sorted(chosen.keys() - there), sorted(chosen.keys() & there))
        if report.overwritten and not force:
            names = ", ".join(report.overwritten)
            raise Conflict(f"There are databases {names} already: --force overwrites them.")
        return report

    async def _documents(self, chosen: Mapping[str, DatabasePart]) -> dict[str, dict[str, Any]]:
        """Return the schemas that are to be set: those of databases that have another one, or none.

        All of them are placed before the first is set, so that none is set if one cannot be.
        """
        there = {database["name"] for database in await self._to.control.databases()}
        documents = {}
        for name, part in chosen.items():
            if name not in there or (await self._to.control.schema(name)).document != part.document:
                documents[name] = part.document
        return documents

    async def _database(
        self, directory: Path, name: str, part: DatabasePart, report: Restored
    ) -> None:
        for class_name in part.classes:
            await self._to.guard.invalidate_class(name, class_name)
        await self._to.start_feed_generation(name)
        for class_name in part.classes:
            route = await self._to.data.route(name, class_name)
            lines = read_lines(directory / class_file(name, class_name))
            target = ClassTarget(self._to, name, route, report, self._on_progress)
            await target.fill(lines, sweep=name in report.overwritten)


def _chosen(manifest: Manifest, databases: Sequence[str] | None) -> dict[str, DatabasePart]:
    for name in databases or ():
        if name not in manifest.databases:
            raise NotFound(f"The backup has no database {name}.")
    return {n: p for n, p in manifest.databases.items() if databases is None or n in databases}
