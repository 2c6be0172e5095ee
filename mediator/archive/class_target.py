"""Putting the objects of a backup into one class, and deleting what else is there.

Unique values may have moved since the backup, so objects of it may be in the way of others. What
the backup lacks is deleted first, and an object that has a value of one that is put is deleted
before, as it is put itself later. So a restoration over objects always comes to its end, and one
that is killed may be repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any, Final
from uuid import uuid4

from mediator.archive.backup import ArchiveProgress, Installation, OnProgress
from mediator.archive.files import ArchiveInvalid
from mediator.base.concurrency import result_or_raise, results_or_raise
from mediator.base.errors import (
    Conflict,
    Locked,
    MediatorError,
    NotFound,
    NotUnique,
    PreconditionFailed,
    Unavailable,
)
from mediator.data_plane.port import pages
from mediator.model.operations import ANYTHING, Condition, Delete, Get, Outcome, Put
from mediator.routing.freshness import STRONG
from mediator.routing.model import ClassRoute
from mediator.schema.constraints import unconstrained
from mediator.schema.ids import check_id
from mediator.schema.json_text import as_text
from mediator.schema.values import Codec

__all__ = ["ClassTarget", "Restored"]

CHUNK: Final = 200
TIMEOUT_S: Final = 120.0
"""For how long a write is tried; one whose process has died is resolved well within it."""

_PAUSE_S: Final = 0.5


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
class ClassTarget:
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

    async def fill(self, read: Callable[[], Iterator[Any]], *, sweep: bool) -> None:
        """Put the objects of a backup, and with `sweep` delete all others before.

        Args:
            read: Returns the lines of the backup, from the first one on.

        Raises:
            ArchiveInvalid: A line is no object.
            Conflict: A version did not rise, a read does not return what was put, or objects of the
                backup have the same unique values.
            MediatorError: An object cannot be put.
        """
        if sweep:
            await self._sweep_others(read())
        after, done, lines = None, 0, read()
        while chunk := await asyncio.to_thread(_taken, lines):
            await self._put(chunk, after, frees=sweep)
            after, done = chunk[-1].id, done + len(chunk)
            self._on_progress(ArchiveProgress("restored", *self._address, done))

    async def _sweep_others(self, lines: Iterator[Any]) -> None:
        after = None
        while chunk := await asyncio.to_thread(_taken, lines):
            await self._sweep(after, chunk[-1].id, {line.id for line in chunk})
            after = chunk[-1].id
        await self._sweep(after, None, frozenset())

    async def _put(self, chunk: Sequence[_SavedObject], after: str | None, *, frees: bool) -> None:
        """Put the objects that follow an id, and read them again."""
        outcomes = await self._put_all(chunk, after, frees=frees)
        for line, outcome in zip(chunk, outcomes, strict=True):
            _check_versions(line, outcome)
        found = await self._look([line.id for line in chunk])
        for line, put, now in zip(chunk, outcomes, found, strict=True):
            # One that has other versions by now has been written by another client.
            if now is not None and now.versions == put.versions:
                self._check_values(line, now)
        self._report.put += len(chunk)

    async def _put_all(
        self, chunk: Sequence[_SavedObject], after: str | None, *, frees: bool
    ) -> list[Outcome]:
        """Put objects; with `frees`, those that have their unique values are deleted.

        Raises:
            Conflict: Two objects of the backup have the same unique values.
        """
        left, answers = list(chunk), dict[str, Outcome | MediatorError]()
        # Each round frees one constraint of every object that is left.
        for _ in range(len(self._route.schema.unique_constraints) + 1):
            found = await self._carry_out(await self._puts(left))
            answers |= zip([line.id for line in left], found, strict=True)
            left = [line for line in left if isinstance(answers[line.id], NotUnique)]
            if not left or not frees:
                return results_or_raise(answers[line.id] for line in chunk)
            await self._free(answers, after)
        raise self._twice(answers)

    async def _puts(self, lines: Sequence[_SavedObject]) -> list[Put]:
        decode = self._codec.decode_fields
        conditions = await self._conditions([line.id for line in lines])
        return [
            Put(
                *self._address,
                line.id,
                _operation(),
                condition,
                values=decode(line.values),
                unchecked=True,  # what it refers to may come later
            )
            for line, condition in zip(lines, conditions, strict=True)
        ]

    async def _free(
        self, answers: Mapping[str, Outcome | MediatorError], after: str | None
    ) -> None:
        """Delete objects that have values of others, unless they have been put by now."""
        holders = {each.holder for each in answers.values() if isinstance(each, NotUnique)}
        left = {id_ for id_ in holders if not isinstance(answers.get(id_), Outcome)}
        if after is not None:
            left = {id_ for id_ in left if id_.encode() > after.encode()}
        await self._delete(sorted(left))

    def _twice(self, answers: Mapping[str, Outcome | MediatorError]) -> Conflict:
        [id_, holder] = next(
            [id_, each.holder] for id_, each in answers.items() if isinstance(each, NotUnique)
        )
        return Conflict(
            f"{self._address[1]}/{id_} cannot be put: in the backup {holder} has the same unique"
            " values, which changed hands while the backup was written."
        )

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
        if as_text(self._route.codec.encode(outcome.values or {})) != as_text(line.values):
            raise Conflict(f"{self._address[1]}/{line.id} was put, and is not what was backed up.")

    async def _sweep(self, after: str | None, upto: str | None, keep: Collection[str]) -> None:
        """Delete the objects after one id and up to another, except for those in `keep`."""
        async for page in pages(self._to.data, *self._address, after, ()):
            beyond = upto is not None and page[-1].id.encode() > upto.encode()
            ids = [o.id for o in page if upto is None or o.id.encode() <= upto.encode()]
            self._report.deleted += await self._delete([id_ for id_ in ids if id_ not in keep])
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

    async def _delete(self, ids: Sequence[str]) -> int:
        """Delete objects; returns how many there were."""
        deleted, there = 0, Condition(present=True)
        deletes = [Delete(*self._address, id_, _operation(), there, unchecked=True) for id_ in ids]
        for answer in await self._carry_out(deletes):
            # Else another client has deleted it meanwhile.
            if not isinstance(answer, NotFound | PreconditionFailed):
                result_or_raise(answer)
                deleted += 1
        return deleted


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
