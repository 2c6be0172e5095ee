"""Restoring a backup: objects are put as any writer would put them (docs/backup.md, "Restoring").

So each gets a version that is above the one it had, in the backup and in the store; caches, the
change feed and materialised views follow.

No write invalidates objects that a store *has lost*, and caches may hold copies of them with a
version that nothing will exceed. So before anything is put, the classes are invalidated in the
sketch, and all of them is revalidated until no such copy is left; and the feed starts another
generation, as it has lost changes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import orjson

from mediator.archive.backup import ArchiveProgress, Installation, OnProgress
from mediator.archive.files import (
    ArchiveInvalid,
    DatabasePart,
    Manifest,
    class_file,
    read_lines,
    read_manifest,
    verify,
)
from mediator.archive.saved_rows import saved_rows
from mediator.archive.schema_history import read_history
from mediator.base.concurrency import result_or_raise, results_or_raise
from mediator.base.errors import (
    Conflict,
    Locked,
    MediatorError,
    NotFound,
    PreconditionFailed,
    Unavailable,
)
from mediator.catalogue.rows import CatalogueRows
from mediator.catalogue.schema_revisions import SchemaHistory
from mediator.catalogue.schemas import CatalogueSchemas
from mediator.control.overrides import documents
from mediator.control.port import ChangeOptions
from mediator.data_plane.port import pages
from mediator.model.operations import ANYTHING, Condition, Delete, Get, Outcome, Put
from mediator.routing.freshness import STRONG
from mediator.routing.model import ClassRoute
from mediator.schema.constraints import unconstrained
from mediator.schema.ids import check_id
from mediator.schema.overrides import Overrides, in_force
from mediator.schema.values import Codec

__all__ = ["Restoration", "Restored"]

CHUNK: Final = 200
TIMEOUT_S: Final = 120.0
"""For how long a write is tried; one whose process has died is resolved well within it."""

_PAUSE_S: Final = 0.5

SKEW_S: Final = 60.0
"""How far clocks of machines may be apart; each object is checked for a higher version."""

_US: Final = 1_000_000


@dataclass(slots=True)
class Restored:
    """Databases created or overwritten, and how many objects and rows; with `dry_run`: to be.

    `deleted` are objects that the backup lacks; `histories` are of databases that are created, and
    get the former versions of their schemas.
    """

    created: list[str] = field(default_factory=list)
    overwritten: list[str] = field(default_factory=list)
    histories: list[str] = field(default_factory=list)
    put: int = 0
    deleted: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True)
class _SavedObject:
    id: str
    versions: dict[str, int]
    values: dict[str, Any]


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
    ) -> Restored:
        """Restore some databases of a backup, or all.

        Args:
            directory: The backup.
            databases: Which; None: all.
            dry_run: Only check the backup, and return what would be done.
            force: Overwrite existing databases: objects that the backup lacks are deleted.

        Raises:
            ArchiveInvalid: There is no backup, or it is damaged; nothing was done.
            NotFound: The backup has no such database.
            Conflict: A database exists already, or the clock is behind the backup's.
            Unplaceable: No system here serves a node of a schema; nothing was done.
            DataWouldMove: A schema would move existing data; nothing was done.
            Unavailable: A system, the catalogue, the sketch or the feed does not answer.
        """
        manifest = await self._verified(directory)
        chosen = _chosen(manifest, databases)
        report = await self._plan(chosen, force=force or dry_run)
        changes = await self._changes(directory, chosen, report)
        # All are placed before the first is set: none is set if one cannot be placed.
        await self._to.control.place(changes, manifest.systems)
        if dry_run:
            report.put = sum(f.lines for part in chosen.values() for f in part.classes.values())
            report.rows = manifest.catalogue.lines
            return report
        await self._to.control.add_statements(manifest.systems)
        for name, (document, options) in changes.items():
            await self._to.control.set_schema(name, document, options=options)
        ids = {name: self._to.id_of(name) for name in chosen}
        rows = saved_rows(directory, manifest)
        report.rows = await CatalogueRows(self._to.catalogue).add(rows, ids)
        for name, part in chosen.items():
            await self._database(directory, name, part, report)
        return report

    async def _verified(self, directory: Path) -> Manifest:
        manifest = await asyncio.to_thread(read_manifest, directory)
        for name, file in manifest.files().items():
            await asyncio.to_thread(verify, directory, name, file)
        await asyncio.to_thread(deque, saved_rows(directory, manifest), 0)
        newest = max((file.newest for file in manifest.files().values()), default=0)
        if newest > (self._to.clock.now() + SKEW_S) * _US:
            raise Conflict(
                "The backup has versions from the future: the clock of this machine is behind. "
                "Versions given from now on could be some that were given before."
            )
        return manifest

    async def _plan(self, chosen: dict[str, DatabasePart], *, force: bool) -> Restored:
        there = {database["name"] for database in await self._to.control.databases()}
        report = Restored(sorted(chosen.keys() - there), sorted(chosen.keys() & there))
        if report.overwritten and not force:
            names = ", ".join(report.overwritten)
            raise Conflict(f"There are databases {names} already: --force overwrites them.")
        return report

    async def _changes(
        self, directory: Path, chosen: Mapping[str, DatabasePart], report: Restored
    ) -> dict[str, tuple[dict[str, Any], ChangeOptions]]:
        """Return the schemas and overrides to be set: where there are none, or others."""
        systems = {system["name"] for system in await self._to.control.systems()}
        changes = {}
        for name, part in chosen.items():
            lasting = in_force(part.overrides, self._to.clock.now()).items()
            overrides = {node: each for node, each in lasting if each.system in systems}
            # Present objects are replaced: constraints of the backup need not hold for them.
            options = ChangeOptions(unchecked=True, overrides=overrides)
            history = await asyncio.to_thread(read_history, directory, name, part)
            if name in report.created:
                report.histories += [name] if history else []
                changes[name] = (part.document, replace(options, history=history))
                continue
            restored = await self._had(name, history) if history else None
            if await self._differs(name, part, overrides, restored):
                changes[name] = (part.document, replace(options, restored=restored))
        return changes

    async def _had(self, name: str, history: SchemaHistory) -> int | None:
        """Return the saved version, if it is one of the database that is here, and not another's.

        No two versions of one number were set at the same time.
        """
        with suppress(NotFound):
            here, _ = await self._to.control.schema_revision(name, history.version)
            if here.at is not None and here.at == history.set_at:
                return history.version
        return None

    async def _differs(
        self, name: str, part: DatabasePart, overrides: Overrides, restored: int | None
    ) -> bool:
        present = await self._to.control.schema(name)
        are_set = documents(overrides).items() <= present.overrides.items()
        if present.document != part.document or not are_set:
            return True
        return restored is not None and await self._names_differ(name, restored, present.version)

    async def _names_differ(self, name: str, saved: int, present: int) -> bool:
        """Whether the same names mean other fields, of which one was dropped and added again."""
        schemas, id_ = CatalogueSchemas(self._to.catalogue), self._to.id_of(name)
        former = await schemas.former(id_, saved, present)
        return former is None or any(
            change["renamed"] or change["ended"] for change in former.changes
        )

    async def _database(
        self, directory: Path, name: str, part: DatabasePart, report: Restored
    ) -> None:
        for class_name in part.classes:
            # Before the first put: copies of what the store has lost are covered by no later write.
            await self._to.guard.invalidate_class(name, class_name)
        await self._to.start_feed_generation(name)
        for class_name, file in part.classes.items():
            route = await self._to.data.route(name, class_name)
            lines = read_lines(directory / class_file(name, class_name), file.lines)
            address = (name, class_name)
            target = _ClassTarget(self._to, address, route, report, self._on_progress)
            await target.fill(lines, sweep=name in report.overwritten)


def _chosen(manifest: Manifest, databases: Sequence[str] | None) -> dict[str, DatabasePart]:
    for name in databases or ():
        if name not in manifest.databases:
            raise NotFound(f"The backup has no database {name}.")
    return {n: p for n, p in manifest.databases.items() if databases is None or n in databases}


@dataclass(eq=False)
class _ClassTarget:
    _to: Installation
    _address: tuple[str, str]
    _route: ClassRoute
    _report: Restored
    _on_progress: OnProgress

    @cached_property
    def _codec(self) -> Codec:
        """Of values that were written under any schema: constraints may have been added since."""
        schema = self._route.schema
        free = {n: replace(unconstrained(f), required=False) for n, f in schema.fields.items()}
        return Codec(replace(schema, fields=free))

    async def fill(self, lines: Iterator[Any], *, sweep: bool) -> None:
        """Put the objects of a backup, and with `sweep` delete all others.

        Raises:
            ArchiveInvalid: A line is no object.
            Conflict: A version did not rise, or a read does not return what was put.
            MediatorError: An object cannot be put.
        """
        after, done = None, 0
        while chunk := await asyncio.to_thread(_taken, lines):
            await self._put(chunk)
            last = chunk[-1].id
            if sweep:
                await self._sweep(after, last, {line.id for line in chunk})
            after, done = last, done + len(chunk)
            self._on_progress(ArchiveProgress("restored", *self._address, done))
        if sweep:
            await self._sweep(after, None, frozenset())

    async def _put(self, chunk: Sequence[_SavedObject]) -> None:
        decode = self._codec.decode_fields
        conditions = await self._conditions([line.id for line in chunk])
        puts = [
            Put(
                *self._address,
                line.id,
                _operation(),
                condition,
                values=decode(line.values),
                unchecked=True,  # what it refers to may come later
            )
            for line, condition in zip(chunk, conditions, strict=True)
        ]
        outcomes = results_or_raise(await self._carry_out(puts))
        for line, outcome in zip(chunk, outcomes, strict=True):
            _check_versions(line, outcome)
        found = await self._look([line.id for line in chunk])
        for line, put, now in zip(chunk, outcomes, found, strict=True):
            # One that has other versions by now has been written by another client.
            if now is not None and now.versions == put.versions:
                self._check_values(line, now)
        self._report.put += len(chunk)

    async def _conditions(self, ids: Sequence[str]) -> list[Condition]:
        """Return a condition that holds for each object: some classes require one."""
        if not self._route.schema.require_if_match:
            return [ANYTHING] * len(ids)
        return [Condition(present=found is not None) for found in await self._look(ids)]

    async def _look(self, ids: Sequence[str]) -> list[Outcome | None]:
        return await asyncio.gather(*map(self._read, ids))

    async def _read(self, id_: str) -> Outcome | None:
        with suppress(NotFound):
            return await self._to.data.read(Get(*self._address, id_), STRONG)
        return None

    def _check_values(self, line: _SavedObject, outcome: Outcome) -> None:
        if _text(self._route.codec.encode(outcome.values or {})) != _text(line.values):
            raise Conflict(f"{self._address[1]}/{line.id} was put, and is not what was backed up.")

    async def _sweep(self, after: str | None, upto: str | None, keep: Collection[str]) -> None:
        """Delete the objects after one id and up to another, except for those in `keep`."""
        async for page in pages(self._to.data, *self._address, after, ()):
            beyond = upto is not None and page[-1].id.encode() > upto.encode()
            ids = [o.id for o in page if upto is None or o.id.encode() <= upto.encode()]
            await self._delete([id_ for id_ in ids if id_ not in keep])
            if beyond:
                return

    async def _carry_out(self, writes: Sequence[Put | Delete]) -> list[Outcome | MediatorError]:
        """Carry out writes, and retry those that an earlier write blocks.

        A restoration that was killed may have left one, which recovery resolves in a while.
        """
        answers = await self._to.data.batch(writes)
        until = self._to.clock.monotonic() + TIMEOUT_S
        while waiting := [n for n, a in enumerate(answers) if isinstance(a, Unavailable | Locked)]:
            if self._to.clock.monotonic() > until:
                break
            await asyncio.sleep(_PAUSE_S)
            again = await self._to.data.batch([writes[n] for n in waiting])
            for n, answer in zip(waiting, again, strict=True):
                answers[n] = answer
        return answers

    async def _delete(self, ids: Sequence[str]) -> None:
        there = Condition(present=True)
        deletes = [Delete(*self._address, id_, _operation(), there, unchecked=True) for id_ in ids]
        for answer in await self._carry_out(deletes):
            # Else another client has deleted it meanwhile.
            if not isinstance(answer, NotFound | PreconditionFailed):
                result_or_raise(answer)
                self._report.deleted += 1


def _taken(lines: Iterator[Any]) -> list[_SavedObject]:
    return [_line(raw) for raw in islice(lines, CHUNK)]


def _line(raw: Any) -> _SavedObject:
    try:
        return _SavedObject(check_id(raw["id"]), dict(raw["versions"]), raw["values"])
    except (LookupError, TypeError, ValueError) as error:
        raise ArchiveInvalid("A line of the backup is no object.") from error


def _check_versions(line: _SavedObject, put: Outcome) -> None:
    for group, version in line.versions.items():
        if (put.versions.get(group) or 0) <= version:
            raise Conflict(
                f"{line.id} had version {version} of {group} in the backup, and has"
                f" {put.versions.get(group)} now: the clock of its system is behind."
            )


def _operation() -> str:
    return f"restore-{uuid4().hex}"


def _text(values: dict[str, Any]) -> bytes:
    return orjson.dumps(values, option=orjson.OPT_SORT_KEYS)
