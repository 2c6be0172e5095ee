"""Puts the objects of a backup into one class, and deletes all other objects there.

Unique values may have moved since the backup, so its objects may block one another. Objects that
the backup lacks are deleted first, and an object that blocks another is deleted before, as it is
put itself later. A value that the backup has twice, as it changed hands meanwhile, goes to the
later object. So a restoration over objects always terminates, and one that is killed can be
repeated.
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


class PutVersions:
    """The versions of objects that were put: 64 bits of a digest each, as there are millions."""

    def __init__(self) -> None:
        self._digests = array("Q")

    def add(self, put: Outcome) -> None:
        """Record the versions that an object has got."""
        self._digests.append(_digest(put))

    def __contains__(self, present: Outcome) -> bool:
        """Whether an object has recorded versions, so no other client has written it."""
        return _digest(present) in self._digests


def _digest(outcome: Outcome) -> int:
    versions = sorted((group, v) for group, v in outcome.versions.items() if v is not None)
    text = repr((outcome.id, versions)).encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest())


CHUNK: Final = 200
TIMEOUT_S: Final = 120.0
"""For how long a write is retried; one whose process has died is resolved well within it."""

_PAUSE_S: Final = 0.5
_MAX_LISTED: Final = 100


@dataclass(slots=True)
class Restored:
    """Databases created or overwritten, and how many objects and rows; with `dry_run`: to be.

    `deleted` are objects that the backup lacks; `histories` are of created databases, which get the
    former versions of their schemas. `superseded` are unique values that went to another object
    while the backup was written, and so are missing from their former one; `superseded_of` lists
    those objects and their fields, the first hundred. `left_out` are rows of tenants, of their
    databases, and of API keys, which may have been removed since.
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

    def add_superseded(self, class_name: str, lost_fields: Mapping[str, Collection[str]]) -> None:
        """Count the values that objects of a class do not get back, by their ids."""
        for id_, names in lost_fields.items():
            self.superseded += len(names)
            if names and len(self.superseded_of) < _MAX_LISTED:
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
    _put_versions: PutVersions = field(default_factory=PutVersions, init=False)

    @cached_property
    def _codec(self) -> Codec:
        """For values that were written under any schema: constraints may have been added since."""
        schema = self._route.schema
        fields = {n: replace(unconstrained(f), required=False) for n, f in schema.fields.items()}
        return Codec(replace(schema, fields=fields))

    async def fill(self, read: Callable[[], Iterator[Any]], *, sweep: bool) -> None:
        """Put the objects of a backup, and with `sweep` delete all others before.

        Args:
            read: Returns the lines of the backup, from the first one on.

        Raises:
            ArchiveInvalid: A line is not an object.
            Conflict: A version did not rise, or a read does not return the object that was put.
            MediatorError: An object cannot be put.
        """
        if sweep:
            await self._sweep_others(read())
        after, count, lines = None, 0, read()
        while chunk := await asyncio.to_thread(_take_chunk, lines):
            await self._put(chunk, after, frees=sweep)
            after, count = chunk[-1].id, count + len(chunk)
            self._on_progress(ArchiveProgress("restored", *self._address, count))

    async def _sweep_others(self, lines: Iterator[Any]) -> None:
        after = None
        while chunk := await asyncio.to_thread(_take_chunk, lines):
            await self._sweep(after, chunk[-1].id, {line.id for line in chunk})
            after = chunk[-1].id
        await self._sweep(after, None, frozenset())

    async def _put(self, chunk: Sequence[_SavedObject], after: str | None, *, frees: bool) -> None:
        """Put the objects that follow an id, and read them back."""
        results = await self._put_all(chunk, after, frees=frees)
        for line, put in results:
            _check_versions(line, put)
        present = await self._look([line.id for line, _ in results])
        for line, put in results:
            # If its versions differ by now, another client has written it.
            if (outcome := present.get(line.id)) is not None and outcome.versions == put.versions:
                self._check_values(line, outcome)
        self._report.put += len(chunk)

    async def _put_all(
        self, chunk: Sequence[_SavedObject], after: str | None, *, frees: bool
    ) -> list[tuple[_SavedObject, Outcome]]:
        """Put objects; return each as it was put, perhaps without values of others.

        Args:
            chunk: The objects.
            after: The last one that was put before.
            frees: Whether objects that are put later are deleted where they have these values.

        Raises:
            MediatorError: An object cannot be put; `NotUnique`: an object has its values that is
                not in the backup, or that another client has written since it was put.
        """
        lines, remaining = {line.id: line for line in chunk}, list(chunk)
        replies = dict[str, Outcome | MediatorError]()
        # Each round frees the values of at least one constraint of an object.
        for _ in range((len(self._route.schema.unique_constraints) + 1) * (len(chunk) + 1)):
            round_replies = await self._carry_out_puts(await self._puts(remaining))
            replies |= zip([line.id for line in remaining], round_replies, strict=True)
            remaining = [line for line in remaining if isinstance(replies[line.id], NotUnique)]
            if not remaining:
                break
            remaining = await self._free_values(remaining, replies, after, frees=frees)
            lines |= {line.id: line for line in remaining}
        return [(line, result_or_raise(replies[id_])) for id_, line in lines.items()]

    async def _free_values(
        self,
        blocked: Sequence[_SavedObject],
        replies: Mapping[str, Outcome | MediatorError],
        after: str | None,
        *,
        frees: bool,
    ) -> list[_SavedObject]:
        """Free the values of objects from other objects; return the objects to put.

        The lines of a backup are in the order in which its objects were read. So a value of two
        lines belongs to the later one: the other one gave it up meanwhile.
        """
        refused = [(line, replies[line.id]) for line in blocked]
        holders = {line.id: reply.holder for line, reply in refused if isinstance(reply, NotUnique)}
        restored_ids = {id_ for id_ in holders.values() if isinstance(replies.get(id_), Outcome)}
        if after is not None:
            restored_ids |= {id_ for id_ in holders.values() if id_.encode() <= after.encode()}
        unrestored_ids = {*holders.values()} - restored_ids
        present = await self._look(sorted(restored_ids))
        foreign = {id_ for id_, outcome in present.items() if outcome not in self._put_versions}
        if not frees:
            foreign |= unrestored_ids
        results_or_raise(reply for line, reply in refused if holders[line.id] in foreign)
        await self._delete(sorted(unrestored_ids))
        return await self._drop_superseded(blocked, holders, present)

    async def _drop_superseded(
        self,
        blocked: Sequence[_SavedObject],
        holders: Mapping[str, str],
        present: Mapping[str, Outcome],
    ) -> list[_SavedObject]:
        """Remove values from objects that lost them to others while the backup was written."""
        lost_fields: defaultdict[str, set[str]] = defaultdict(set)
        objects = []
        for line in blocked:
            holder = holders[line.id]
            shared = self._shared_fields(line, present.get(holder))
            is_later = holder.encode() < line.id.encode()
            lost_fields[holder if is_later else line.id] |= shared
            values = {n: v for n, v in line.values.items() if is_later or n not in shared}
            objects.append(replace(line, values=values))
        self._report.add_superseded(self._address[1], lost_fields)
        await self._put_without(lost_fields, present)
        return objects

    def _shared_fields(self, line: _SavedObject, other: Outcome | None) -> set[str]:
        """Return fields without which two objects have no unique values in common."""
        schema, line_values = self._route.schema, self._codec.decode_fields(line.values)
        other_values = {} if other is None else other.values or {}
        shared = set()
        for names in schema.unique_constraints:
            claim = claim_of(schema.fields, names, line_values)
            if claim is not None and claim == claim_of(schema.fields, names, other_values):
                optional = [name for name in names if not schema.fields[name].required]
                shared.add((optional or names)[-1])
        return shared

    async def _put_without(
        self, lost_fields: Mapping[str, Collection[str]], present: Mapping[str, Outcome]
    ) -> None:
        """Put restored objects again, without the values of some fields."""
        puts = [
            Put(
                *self._address,
                id_,
                _operation(),
                Condition(versions=(present[id_].versions,)),
                values={n: v for n, v in (present[id_].values or {}).items() if n not in names},
                unchecked=True,
            )
            for id_, names in lost_fields.items()
            if names and id_ in present
        ]
        for reply in await self._carry_out_puts(puts):
            # Otherwise another client has written it meanwhile: the next round finds the holder.
            if not isinstance(reply, NotFound | PreconditionFailed):
                result_or_raise(reply)

    async def _carry_out_puts(self, puts: Sequence[Put]) -> list[Outcome | MediatorError]:
        replies = await self._carry_out(puts)
        for reply in replies:
            if isinstance(reply, Outcome):
                self._put_versions.add(reply)
        return replies

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
                unchecked=True,  # objects to which it refers may come later
            )
            for line, condition in zip(lines, conditions, strict=True)
        ]

    async def _conditions(self, ids: Sequence[str]) -> list[Condition]:
        """Return a condition that holds for each object: some classes require one."""
        if not self._route.schema.require_if_match:
            return [ANYTHING] * len(ids)
        present = await self._look(ids)
        return [Condition(present=id_ in present) for id_ in ids]

    async def _look(self, ids: Sequence[str]) -> dict[str, Outcome]:
        outcomes = await asyncio.gather(*map(self._read, ids))
        return {outcome.id: outcome for outcome in outcomes if outcome is not None}

    async def _read(self, id_: str) -> Outcome | None:
        with suppress(NotFound):
            return await self._to.data.read(Get(*self._address, id_), STRONG)
        return None

    def _check_values(self, line: _SavedObject, outcome: Outcome) -> None:
        if as_text(self._route.codec.encode(outcome.values or {})) != as_text(line.values):
            raise Conflict(f"{self._address[1]}/{line.id} was put, but differs from the backup.")

    async def _sweep(self, after: str | None, upto: str | None, keep: Collection[str]) -> None:
        """Delete the objects after one id and up to another, except for those in `keep`."""
        async for page in pages(self._to.data, *self._address, after, ()):
            is_last = upto is not None and page[-1].id.encode() > upto.encode()
            ids = [o.id for o in page if upto is None or o.id.encode() <= upto.encode()]
            self._report.deleted += await self._delete([id_ for id_ in ids if id_ not in keep])
            if is_last:
                return

    async def _carry_out(self, writes: Sequence[Put | Delete]) -> list[Outcome | MediatorError]:
        """Carry out writes, and retry those that an earlier write blocks.

        A restoration that was killed may have left such a write, which recovery resolves soon.
        """
        replies = await self._to.data.batch(writes)
        until = self._to.clock.monotonic() + TIMEOUT_S
        while blocked := [n for n, a in enumerate(replies) if isinstance(a, Unavailable | Locked)]:
            if self._to.clock.monotonic() > until:
                break
            await asyncio.sleep(_PAUSE_S)
            retried = await self._to.data.batch([writes[n] for n in blocked])
            for n, reply in zip(blocked, retried, strict=True):
                replies[n] = reply
        return replies

    async def _delete(self, ids: Sequence[str]) -> int:
        """Delete objects; returns how many existed."""
        deleted, condition = 0, Condition(present=True)
        deletes = [
            Delete(*self._address, id_, _operation(), condition, unchecked=True) for id_ in ids
        ]
        for reply in await self._carry_out(deletes):
            # Otherwise another client has deleted it meanwhile.
            if not isinstance(reply, NotFound | PreconditionFailed):
                result_or_raise(reply)
                deleted += 1
        return deleted


def _take_chunk(lines: Iterator[Any]) -> list[_SavedObject]:
    return [_line(raw) for raw in islice(lines, CHUNK)]


def _line(raw: Any) -> _SavedObject:
    try:
        return _SavedObject(check_id(raw["id"]), dict(raw["versions"]), raw["values"])
    except (LookupError, TypeError, ValueError) as error:
        raise ArchiveInvalid("A line of the backup is not an object.") from error


def _check_versions(line: _SavedObject, put: Outcome) -> None:
    for group, version in line.versions.items():
        if (put.versions.get(group) or 0) <= version:
            raise Conflict(
                f"{line.id} had version {version} of {group} in the backup, and has"
                f" {put.versions.get(group)} now: the clock of its system is behind."
            )


def _operation() -> str:
    return f"restore-{uuid4().hex}"
