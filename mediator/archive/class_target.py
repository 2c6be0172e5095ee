"""Putting the objects of a backup into one class, and deleting what else is there.

Unique values may have moved since the backup, so objects of it may be in the way of others. What
the backup lacks is deleted first, and an object that has a value of one that is put is deleted
before, as it is put itself later. A value that the backup has twice, as it changed hands meanwhile,
goes to the later object. So a restoration over objects always comes to its end, and one that is
killed may be repeated.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
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
from mediator.schema.unique import claim_of
from mediator.schema.values import Codec

__all__ = ["ClassTarget", "Restored"]


class GivenVersions:
    """The versions of objects that were put: 64 bits of a digest each, as there are millions."""

    def __init__(self) -> None:
        self._digests = array("Q")

    def add(self, put: Outcome) -> None:
        """Remember the versions that an object has got."""
        self._digests.append(_digest(put))

    def __contains__(self, present: Outcome) -> bool:
        """Whether an object has versions that it was given, and so nobody else has written it."""
        return _digest(present) in self._digests


def _digest(outcome: Outcome) -> int:
    versions = sorted((group, v) for group, v in outcome.versions.items() if v is not None)
    text = repr((outcome.id, versions)).encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest())


CHUNK: Final = 200
TIMEOUT_S: Final = 120.0
"""For how long a write is tried; one whose process has died is resolved well within it."""

_PAUSE_S: Final = 0.5
_MOST_NAMED: Final = 100


@dataclass(slots=True)
class Restored:
    """Databases created or overwritten, and how many objects and rows; with `dry_run`: to be.

    `deleted` are objects that the backup lacks; `histories` are of databases that are created, and
    get the former versions of their schemas. `superseded` are unique values that went to another
    object while the backup was written, and so are missing from the one that had them before;
    `superseded_of` names those objects and their fields, the first hundred. `left_out` are rows of
    tenants, of the databases that they own, and of API keys, which may have been removed since.
    """

    created: list[str] = field(default_factory=list)
    overwritten: list[str] = field(default_factory=list)
    histories: list[str] = field(default_factory=list)
    put: int = 0
    deleted: int = 0
    rows: int = 0
    left_out: int = 0
    superseded: int = 0
    superseded_of: list[str] = field(default_factory=list)

    def add_superseded(self, class_name: str, lost: Mapping[str, Collection[str]]) -> None:
        """Count what objects of a class do not get back, by their ids."""
        for id_, names in lost.items():
            self.superseded += len(names)
            if names and len(self.superseded_of) < _MOST_NAMED:
                self.superseded_of.append(f"{class_name}/{id_}: {', '.join(sorted(names))}")


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
    _given: GivenVersions = field(default_factory=GivenVersions, init=False)

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
            Conflict: A version did not rise, or a read does not return what was put.
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
        done = await self._put_all(chunk, after, frees=frees)
        for line, put in done:
            _check_versions(line, put)
        found = await self._look([line.id for line, _ in done])
        for line, put in done:
            # One that has other versions by now has been written by another client.
            if (now := found.get(line.id)) is not None and now.versions == put.versions:
                self._check_values(line, now)
        self._report.put += len(chunk)

    async def _put_all(
        self, chunk: Sequence[_SavedObject], after: str | None, *, frees: bool
    ) -> list[tuple[_SavedObject, Outcome]]:
        """Put objects; return each as it was put, which may be without values of others.

        Args:
            chunk: The objects.
            after: The last one that was put before.
            frees: Whether objects that are put later are deleted where they have these values.

        Raises:
            MediatorError: An object cannot be put; `NotUnique`: one has its values that is not in
                the backup, or that another client has written since it was put.
        """
        lines, left = {line.id: line for line in chunk}, list(chunk)
        answers = dict[str, Outcome | MediatorError]()
        # Each round makes way for one constraint of an object, at least.
        for _ in range((len(self._route.schema.unique_constraints) + 1) * (len(chunk) + 1)):
            found = await self._carry_out_puts(await self._puts(left))
            answers |= zip([line.id for line in left], found, strict=True)
            left = [line for line in left if isinstance(answers[line.id], NotUnique)]
            if not left:
                break
            left = await self._make_way(left, answers, after, frees=frees)
            lines |= {line.id: line for line in left}
        return [(line, result_or_raise(answers[id_])) for id_, line in lines.items()]

    async def _make_way(
        self,
        left: Sequence[_SavedObject],
        answers: Mapping[str, Outcome | MediatorError],
        after: str | None,
        *,
        frees: bool,
    ) -> list[_SavedObject]:
        """Make way for objects whose values others have; return them as they are to be put.

        The lines of a backup are in the order in which its objects were read. So where two of them
        have a value, it belongs to the later one: the other one gave it up meanwhile.
        """
        refused = [(line, answers[line.id]) for line in left]
        holders = {line.id: each.holder for line, each in refused if isinstance(each, NotUnique)}
        put = {id_ for id_ in holders.values() if isinstance(answers.get(id_), Outcome)}
        if after is not None:
            put |= {id_ for id_ in holders.values() if id_.encode() <= after.encode()}
        others = {*holders.values()} - put
        present = await self._look(sorted(put))
        foreign = {id_ for id_, outcome in present.items() if outcome not in self._given}
        if not frees:
            foreign |= others
        results_or_raise(each for line, each in refused if holders[line.id] in foreign)
        await self._delete(sorted(others))
        return await self._leave_to_later(left, holders, present)

    async def _leave_to_later(
        self,
        left: Sequence[_SavedObject],
        holders: Mapping[str, str],
        present: Mapping[str, Outcome],
    ) -> list[_SavedObject]:
        """Take values from those that lost them to others while the backup was written."""
        lost: defaultdict[str, set[str]] = defaultdict(set)
        objects = []
        for line in left:
            holder = holders[line.id]
            shared = self._shared(line, present.get(holder))
            is_later = holder.encode() < line.id.encode()
            lost[holder if is_later else line.id] |= shared
            kept = {n: v for n, v in line.values.items() if is_later or n not in shared}
            objects.append(replace(line, values=kept))
        self._report.add_superseded(self._address[1], lost)
        await self._put_without(lost, present)
        return objects

    def _shared(self, line: _SavedObject, other: Outcome | None) -> set[str]:
        """Return fields without which two objects have no unique values in common."""
        schema, own = self._route.schema, self._codec.decode_fields(line.values)
        values = {} if other is None else other.values or {}
        shared = set()
        for names in schema.unique_constraints:
            claim = claim_of(schema.fields, names, own)
            if claim is not None and claim == claim_of(schema.fields, names, values):
                optional = [name for name in names if not schema.fields[name].required]
                shared.add((optional or names)[-1])
        return shared

    async def _put_without(
        self, lost: Mapping[str, Collection[str]], present: Mapping[str, Outcome]
    ) -> None:
        """Put objects that are there again, without the values of some fields."""
        puts = [
            Put(
                *self._address,
                id_,
                _operation(),
                Condition(versions=(present[id_].versions,)),
                values={n: v for n, v in (present[id_].values or {}).items() if n not in names},
                unchecked=True,
            )
            for id_, names in lost.items()
            if names and id_ in present
        ]
        for answer in await self._carry_out_puts(puts):
            # Else another client has written it meanwhile: what has its values now is seen next.
            if not isinstance(answer, NotFound | PreconditionFailed):
                result_or_raise(answer)

    async def _carry_out_puts(self, puts: Sequence[Put]) -> list[Outcome | MediatorError]:
        answers = await self._carry_out(puts)
        for each in answers:
            if isinstance(each, Outcome):
                self._given.add(each)
        return answers

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

    async def _conditions(self, ids: Sequence[str]) -> list[Condition]:
        """Return a condition that holds for each object: some classes require one."""
        if not self._route.schema.require_if_match:
            return [ANYTHING] * len(ids)
        found = await self._look(ids)
        return [Condition(present=id_ in found) for id_ in ids]

    async def _look(self, ids: Sequence[str]) -> dict[str, Outcome]:
        found = await asyncio.gather(*map(self._read, ids))
        return {each.id: each for each in found if each is not None}

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
