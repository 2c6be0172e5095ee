"""Copies of records of other stores: they only ever become newer."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from mediator.schema.types import FieldType, Values
from mediator.stores.conformance.check import Theme
from mediator.stores.conformance.expect import NotOffered, present, same
from mediator.stores.conformance.samples import EDGES, counter, plain, text
from mediator.stores.conformance.scratch import Scratch, Subject
from mediator.stores.port import Mirror, Record

__all__ = ["THEME"]

THEME = Theme("mirror")

_START: Final = 1_000
"""The creation version of the copies; their versions count from it."""
_MANY: Final = 10


def _mirror(subject: Subject) -> Mirror:
    if not isinstance(subject.store, Mirror):
        raise NotOffered("the store takes no copies")
    return subject.store


async def _two_groups(scratch: Scratch) -> tuple[Subject, Mirror]:
    subject = await scratch.subject(counter(), text(group="side"))
    return subject, _mirror(subject)


def _copy(main: int, side: int, id_: str = "x", *, creation: int = 0) -> Record:
    values: Values = {"n": main, "s": f"at {side}"}
    return Record(id_, _START + creation, {"main": _START + main, "side": _START + side}, values)


async def _absorb(subject: Subject, *copies: Record) -> list[bool]:
    return await _mirror(subject).absorb(subject.fragment, copies)


async def _holds(subject: Subject, expected: Record | None, what: str) -> None:
    same(await subject.read("x"), expected, what)


@THEME.proves("contract")
async def a_copy_is_the_record(scratch: Scratch) -> None:
    """A copy has the values, versions and creation version it was given, edge cases included."""
    fields = [plain(type_, type_.value) for type_ in FieldType if type_ in EDGES]
    subject = await scratch.subject(*fields)
    _mirror(subject)
    for number in range(3):
        values = {f.name: EDGES[f.type][number % len(EDGES[f.type])] for f in fields}
        given = Record(f"id {number}", _START, {"main": _START + number}, values)
        same(await _absorb(subject, given), [True], "absorbing")
        same(await subject.read(given.id), given, "the copy")


@THEME.proves("contract")
async def missing_and_null_are_copied(scratch: Scratch) -> None:
    """What a newer record lacks, the copy lacks; a null stays a null."""
    subject, _ = await _two_groups(scratch)
    await _absorb(subject, _copy(0, 0))
    newer = replace(_copy(1, 1), values={"s": None})
    same(await _absorb(subject, newer), [True], "absorbing")
    await _holds(subject, newer, "a copy without a value")


@THEME.proves("contract")
async def an_older_copy_is_left_out(scratch: Scratch) -> None:
    """A copy that comes late changes nothing, and is said to be surpassed."""
    subject, _ = await _two_groups(scratch)
    newest = _copy(5, 5)
    await _absorb(subject, newest)
    for main, side in ((5, 5), (4, 5), (5, 4), (0, 0)):
        same(await _absorb(subject, _copy(main, side)), [True], "absorbing")
        await _holds(subject, newest, "after an older copy")


@THEME.proves("contract")
async def copies_that_cross_are_refused(scratch: Scratch) -> None:
    """A copy that is newer in one group and older in another is refused, and that is returned."""
    subject, _ = await _two_groups(scratch)
    held = _copy(5, 1)
    await _absorb(subject, held)
    same(await _absorb(subject, _copy(1, 5)), [False], "absorbing across")
    await _holds(subject, held, "after a copy across")


@THEME.proves("contract")
async def deleted_copies_stay_deleted(scratch: Scratch) -> None:
    """What was forgotten does not come back with a late copy; a later generation does come."""
    subject, mirror = await _two_groups(scratch)
    await _absorb(subject, _copy(0, 0))
    deleted = _START + 10
    await mirror.forget(subject.fragment, [("x", deleted), ("never seen", deleted)])
    await _holds(subject, None, "after forgetting")
    same(await subject.store.count(subject.fragment), 0, "count")
    late = [_copy(9, 9), _copy(0, 0, "never seen")]
    same(await _absorb(subject, *late), [True, True], "absorbing deleted generations")
    same(await subject.read_all(["x", "never seen"]), [None, None], "deleted copies")
    later = _copy(11, 11, creation=11)
    same(await _absorb(subject, later), [True], "absorbing the next generation")
    await _holds(subject, later, "the next generation")
    await mirror.forget(subject.fragment, [("x", deleted)])
    await _holds(subject, later, "after a late tombstone of the former generation")


@THEME.proves("contract")
async def the_next_generation_replaces_the_former(scratch: Scratch) -> None:
    """A record of a later generation replaces all of the copy, even with nothing of a group."""
    subject, _ = await _two_groups(scratch)
    await _absorb(subject, _copy(5, 5))
    later = Record("x", _START + 6, {"main": _START + 6}, {"n": 1})
    same(await _absorb(subject, later), [True], "absorbing")
    now = present(await subject.read("x"), "the next generation")
    same(now.values, {"n": 1}, "values")
    same(now.creation_version, later.creation_version, "creation version")
    same(await _absorb(subject, _copy(5, 9)), [True], "absorbing the former")
    same((await subject.values("x")), {"n": 1}, "after a copy of the former")


@THEME.proves("contract")
async def force_takes_in_what_is_older(scratch: Scratch) -> None:
    """A copy that is ahead of its original, whose store has lost writes, can be repaired."""
    subject, mirror = await _two_groups(scratch)
    await _absorb(subject, _copy(5, 1))
    older = _copy(1, 1)
    same(await mirror.absorb(subject.fragment, [older], force=True), [True], "absorbing by force")
    await _holds(subject, older, "after absorbing by force")


@THEME.proves("contract")
async def copies_at_once_end_with_the_newest(scratch: Scratch) -> None:
    """Whatever order copies of many records arrive in, side by side, each ends with its newest."""
    subject, _ = await _two_groups(scratch)
    ids = [f"id {number}" for number in range(_MANY)]
    steps = [(7 * step) % _MANY for step in range(_MANY)]
    await asyncio.gather(
        *(_absorb(subject, *(_copy(step, step, id_) for id_ in ids)) for step in steps)
    )
    newest = [_copy(max(steps), max(steps), id_) for id_ in ids]
    same(await subject.read_all(ids), newest, "the copies")
    same(await subject.store.count(subject.fragment), _MANY, "count")
