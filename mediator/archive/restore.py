"""Restores a backup: objects are put like ordinary writes (docs/backup.md, "Restoring").

So each gets a version above the one it had, in the backup and in the store; caches, the change feed
and materialised views follow.

No write invalidates objects that a store *has lost*, and caches can hold copies of them with a
version that no later one exceeds. So before any put, the classes are invalidated in the sketch, and
all their copies are revalidated until none of these is left; and the feed starts a new generation,
as it has lost changes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from mediator.archive.backup import Installation, OnProgress
from mediator.archive.class_target import ClassTarget, Restored
from mediator.archive.files import (
    CATALOGUE,
    ArchiveInvalid,
    DatabasePart,
    Manifest,
    class_file,
    read_lines,
    read_manifest,
    verify,
)
from mediator.archive.schema_history import read_history
from mediator.base.errors import Conflict, NotFound
from mediator.catalogue.row_decoding import DecodedRow, decode_row
from mediator.catalogue.rows import CatalogueRows
from mediator.catalogue.schema_revisions import SchemaHistory
from mediator.catalogue.schemas import CatalogueSchemas
from mediator.control.overrides import documents
from mediator.control.port import ChangeOptions
from mediator.schema.errors import InvalidValue
from mediator.schema.overrides import Overrides, in_force

__all__ = ["Restoration", "Restored"]

SKEW_S: Final = 60.0
"""Maximum clock skew between machines; each object is checked for a higher version."""

_US: Final = 1_000_000


@dataclass(eq=False)
class Restoration:
    _to: Installation
    _on_progress: OnProgress

    async def run(
        self,
        directory: Path,
        databases: Sequence[str] | None = None,
        *,
        dry_run: bool = False,
        force: bool = False,
        keys: bool = False,
    ) -> Restored:
        """Restore some databases of a backup, or all.

        Args:
            directory: The backup.
            databases: Which; None: all.
            dry_run: Only check the backup, and return what would be done.
            force: Overwrite existing databases: objects that the backup lacks are deleted.
            keys: Add tenants and API keys even to a catalogue that has some, although they may have
                been removed or revoked since.

        Raises:
            ArchiveInvalid: There is no backup, or it is damaged; nothing was done.
            NotFound: The backup has no such database.
            Conflict: A database exists already, or the clock is behind the backup's.
            Unplaceable: No system here serves a node of a schema; nothing was done.
            DataWouldMove: A schema would move existing data; nothing was done.
            Unavailable: A system, the catalogue, the sketch or the feed does not answer.
        """
        manifest = await self._verify(directory)
        chosen = _choose(manifest, databases)
        report = await self._plan(chosen, force=force or dry_run)
        changes = await self._changes(directory, chosen, report)
        # All are placed before the first is set: if one cannot be placed, none is set.
        await self._to.control.place(changes, manifest.systems)
        rows, saved = CatalogueRows(self._to.catalogue), saved_rows(directory, manifest)
        if dry_run:
            report.put = sum(f.lines for part in chosen.values() for f in part.classes.values())
            report.left_out = 0 if keys else await rows.left_out(saved)
            report.rows = manifest.catalogue.lines - report.left_out
            return report
        await self._to.control.add_statements(manifest.systems)
        for name, (document, options) in changes.items():
            await self._to.control.set_schema(name, document, options=options)
        ids = {name: self._to.id_of(name) for name in chosen}
        result = await rows.add(saved, ids, keys=keys)
        report.rows, report.left_out = result.added, result.left_out
        for name, part in chosen.items():
            await self._restore_database(directory, name, part, report)
        return report

    async def _verify(self, directory: Path) -> Manifest:
        manifest = await asyncio.to_thread(read_manifest, directory)
        for name, file in manifest.files().items():
            await asyncio.to_thread(verify, directory, name, file)
        await asyncio.to_thread(deque, saved_rows(directory, manifest), 0)
        newest = max((file.newest for file in manifest.files().values()), default=0)
        if newest > (self._to.clock.now() + SKEW_S) * _US:
            raise Conflict(
                "The backup has versions from the future: the clock of this machine is behind. "
                "New versions could repeat earlier ones."
            )
        return manifest

    async def _plan(self, chosen: dict[str, DatabasePart], *, force: bool) -> Restored:
        existing = {database["name"] for database in await self._to.control.databases()}
        report = Restored(sorted(chosen.keys() - existing), sorted(chosen.keys() & existing))
        if report.overwritten and not force:
            names = ", ".join(report.overwritten)
            raise Conflict(f"There are databases {names} already: --force overwrites them.")
        return report

    async def _changes(
        self, directory: Path, chosen: Mapping[str, DatabasePart], report: Restored
    ) -> dict[str, tuple[dict[str, Any], ChangeOptions]]:
        """Return the schemas and overrides to set: missing or different ones."""
        systems = {system["name"] for system in await self._to.control.systems()}
        changes = {}
        for name, part in chosen.items():
            lasting = in_force(part.overrides, self._to.clock.now()).items()
            overrides = {node: override for node, override in lasting if override.system in systems}
            # Present objects are replaced: constraints of the backup need not hold for them.
            options = ChangeOptions(unchecked=True, overrides=overrides)
            history = await asyncio.to_thread(read_history, directory, name, part)
            if name in report.created:
                report.histories += [name] if history else []
                changes[name] = (part.document, replace(options, history=history))
                continue
            restored = await self._restored_version(name, history) if history else None
            if await self._differs(name, part, overrides, restored):
                changes[name] = (part.document, replace(options, restored=restored))
        return changes

    async def _restored_version(self, name: str, history: SchemaHistory) -> int | None:
        """Return the saved version, if it is one of the present database, and not another's.

        No two versions of one number were set at the same time.
        """
        with suppress(NotFound):
            revision, _ = await self._to.control.schema_revision(name, history.version)
            if revision.at is not None and revision.at == history.set_at:
                return history.version
        return None

    async def _differs(
        self, name: str, part: DatabasePart, overrides: Overrides, restored: int | None
    ) -> bool:
        present = await self._to.control.schema(name)
        has_overrides = documents(overrides).items() <= present.overrides.items()
        if present.document != part.document or not has_overrides:
            return True
        return restored is not None and await self._names_differ(name, restored, present.version)

    async def _names_differ(self, name: str, saved: int, present: int) -> bool:
        """Whether the same names mean other fields, such as one dropped and added again."""
        schemas, id_ = CatalogueSchemas(self._to.catalogue), self._to.id_of(name)
        former = await schemas.former(id_, saved, present)
        return former is None or any(
            change["renamed"] or change["ended"] for change in former.changes
        )

    async def _restore_database(
        self, directory: Path, name: str, part: DatabasePart, report: Restored
    ) -> None:
        for class_name in part.classes:
            # Before the first put: no later write covers copies of objects that the store lost.
            await self._to.guard.invalidate_class(name, class_name)
        await self._to.start_feed_generation(name)
        for class_name, file in part.classes.items():
            route = await self._to.data.route(name, class_name)
            read = partial(read_lines, directory / class_file(name, class_name), file.lines)
            address = (name, class_name)
            target = ClassTarget(self._to, address, route, report, self._on_progress)
            await target.fill(read, sweep=name in report.overwritten)


def _choose(manifest: Manifest, databases: Sequence[str] | None) -> dict[str, DatabasePart]:
    for name in databases or ():
        if name not in manifest.databases:
            raise NotFound(f"The backup has no database {name}.")
    return {n: p for n, p in manifest.databases.items() if databases is None or n in databases}


def saved_rows(directory: Path, manifest: Manifest) -> Iterator[DecodedRow]:
    """Yield the rows of a backup, with one in memory at a time.

    Rows of tables that only a later version has are left out.

    Raises:
        ArchiveInvalid: A line is not a row, or there are more or fewer than in the manifest.
    """
    lines = read_lines(directory / CATALOGUE, manifest.catalogue.lines)
    for number, raw in enumerate(lines, start=1):
        try:
            row = decode_row(raw)
        except InvalidValue as error:
            detail = f"Line {number} of {CATALOGUE} is no row of the catalogue: {error}."
            raise ArchiveInvalid(detail) from error
        if row is not None:
            yield row
