"""Filling one class with the objects of a backup."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final
from uuid import uuid4

import orjson

from mediator.archive.backup import ArchiveProgress, OnProgress
from mediator.archive.model import ArchiveInvalid
from mediator.base.clock import Clock
from mediator.base.concurrency import result_or_raise, results_or_raise
from mediator.base.errors import (
    Conflict,
    Locked,
    MediatorError,
    NotFound,
    PreconditionFailed,
    Unavailable,
)
from mediator.data_plane.port import DataPlane
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

__all__ = ["ClassTarget", "Restored"]

CHUNK: Final = 200
TIMEOUT_S: Final = 120.0
"""For how long a write is tried; one whose process has died is settled well within it."""

_PAUSE_S: Final = 0.5


@dataclass(slots=True)
class Restored:
    """What was done, or would be.

    Attributes:
        created: Databases that were not there.
        overwritten: Databases that were.
        put: Objects put.
        deleted: Objects deleted, as the backup has not got them.
        rows: Rows added to the catalogue.
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


class ClassTarget:
    """One class that is being restored.

    Args:
        plane: Where objects are put.
        database: The database.
        route: The class.
        report: What was done, brought up to date.
        on_progress: Called with the progress.
        clock: For how long is waited.
    """

    def __init__(
        self,
        plane: DataPlane,
        database: str,
        route: ClassRoute,
        report: Restored,
        on_progress: OnProgress,
        clock: Clock,
    ) -> None:
        self._plane = plane
        self._address = (database, route.schema.name)
        self._route = route
        self._report = report
        self._on_progress = on_progress
        self._clock = clock

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

        A restoration that was killed may have left one behind, which is settled in a while.
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
