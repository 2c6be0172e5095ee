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
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import orjson

from mediator.archive.backup import ArchiveProgress, Installation, OnProgress
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
from mediator.data_plane.walking import pages
from mediator.model.operations import (
    ANYTHING,
    Condition,
    Delete,
    Get,
    Outcome,
    Put,
)
from mediator.routing.freshness import STRONG
from mediator.routing.model import ClassRoute
from mediator.schema.ids import check_id

__all__ = ["ClassTarget", "Restoration", "Restored"]

CHUNK: Final = 200
TIMEOUT_S: Final = 120.0
"""For how long a write is tried; one whose process has died is resolved well within it."""

_PAUSE_S: Final = 0.5


SKEW_S: Final = 60.0
"""How far clocks of machines may be apart; that versions rise is looked at with each object."""

_US: Final = 1_000_000


@dataclass(slots=True)
class Restored:
    """What was done, or would be: databases created or overwritten, and how many objects and rows.

    `deleted` are objects that the backup has not got.
    """

    created: list[str] = field(default_factory=list)
    overwritten: list[str] = field(default_factory=list)
    put: int = 0
    deleted: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True)
class _Line:
    """An object of a backup."""

    id: str
    versions: dict[str, int]
    values: dict[str, Any]


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


class ClassTarget:
    """One class that is being restored; `report` is kept up with what was done."""

    def __init__(
        self,
        installation: Installation,
        database: str,
        route: ClassRoute,
        report: Restored,
        on_progress: OnProgress,
    ) -> None:
        self._plane = installation.data
        self._address = (database, route.schema.name)
        self._route = route
        self._report = report
        self._on_progress = on_progress
        self._clock = installation.clock

    async def fill(self, lines: Iterator[Any], *, sweep: bool) -> None:
        """Put the objects of a backup, and with `sweep` delete all others.

        Raises:
            ArchiveInvalid: A line is no object.
            Conflict: A version did not rise, or what was put is not what can be read.
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

    async def _put(self, chunk: Sequence[_Line]) -> None:
        decode = self._route.codec.decode_fields
        conditions = await self._conditions([line.id for line in chunk])
        puts = [
            Put(*self._address, line.id, _operation(), condition, values=decode(line.values))
            for line, condition in zip(chunk, conditions, strict=True)
        ]
        outcomes = results_or_raise(await self._carry_out(puts))
        for line, outcome in zip(chunk, outcomes, strict=True):
            _check_versions(line, outcome)
        found = await self._look([line.id for line in chunk])
        for line, put, now in zip(chunk, outcomes, found, strict=True):
            # One that has other versions by now was written by somebody else.
            if now is not None and now.versions == put.versions:
                self._check_values(line, now)
        self._report.put += len(chunk)

    async def _conditions(self, ids: Sequence[str]) -> list[Condition]:
        """Return a condition that holds for each object: some classes insist on one."""
        if not self._route.schema.require_if_match:
            return [ANYTHING] * len(ids)
        return [Condition(present=found is not None) for found in await self._look(ids)]

    async def _look(self, ids: Sequence[str]) -> list[Outcome | None]:
        return await asyncio.gather(*map(self._read, ids))

    async def _read(self, id_: str) -> Outcome | None:
        with suppress(NotFound):
            return await self._plane.read(Get(*self._address, id_), STRONG)
        return None

    def _check_values(self, line: _Line, outcome: Outcome) -> None:
        if _text(self._route.codec.encode(outcome.values or {})) != _text(line.values):
            raise Conflict(f"{self._address[1]}/{line.id} was put, and is not what was backed up.")

    async def _sweep(self, after: str | None, upto: str | None, keep: Collection[str]) -> None:
        """Delete what lies beyond one id and up to another, except for what is to stay."""
        async for page in pages(self._plane, *self._address, after, ()):
            beyond = upto is not None and page[-1].id.encode() > upto.encode()
            ids = [o.id for o in page if upto is None or o.id.encode() <= upto.encode()]
            await self._delete([id_ for id_ in ids if id_ not in keep])
            if beyond:
                return

    async def _carry_out(self, writes: Sequence[Put | Delete]) -> list[Outcome | MediatorError]:
        """Carry out writes; those that earlier ones stand in the way of are tried again.

        A restoration that was killed may have left one behind, which is resolved in a while.
        """
        answers = await self._plane.batch(writes)
        until = self._clock.monotonic() + TIMEOUT_S
        while waiting := [n for n, a in enumerate(answers) if isinstance(a, Unavailable | Locked)]:
            if self._clock.monotonic() > until:
                break
            await asyncio.sleep(_PAUSE_S)
            again = await self._plane.batch([writes[n] for n in waiting])
            for n, answer in zip(waiting, again, strict=True):
                answers[n] = answer
        return answers

    async def _delete(self, ids: Sequence[str]) -> None:
        """Delete objects; those that somebody else has deleted meanwhile need not be."""
        there = Condition(present=True)
        deletes = [Delete(*self._address, id_, _operation(), there) for id_ in ids]
        for answer in await self._carry_out(deletes):
            if not isinstance(answer, NotFound | PreconditionFailed):
                result_or_raise(answer)
                self._report.deleted += 1


def _taken(lines: Iterator[Any]) -> list[_Line]:
    return [_line(raw) for raw in islice(lines, CHUNK)]


def _line(raw: Any) -> _Line:
    try:
        return _Line(check_id(raw["id"]), dict(raw["versions"]), raw["values"])
    except (LookupError, TypeError, ValueError) as error:
        raise ArchiveInvalid("A line of the backup is no object.") from error


def _check_versions(line: _Line, put: Outcome) -> None:
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
