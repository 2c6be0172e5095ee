"""Copies of records of other stores: they only ever become newer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from mediator.base.concurrency import concurrently
from mediator.schema.tree import Field
from mediator.schema.types import FieldType, Values
from mediator.stores.conformance.check import Theme
from mediator.stores.conformance.expect import NotOffered, present, same
from mediator.stores.conformance.samples import EDGES, counter, plain, text
from mediator.stores.conformance.scratch import Scratch, ScratchClass
from mediator.stores.port import Mirror, Record

__all__ = ["THEME"]

THEME = Theme("mirror")

_START: Final = 1_000
"""The creation version of the copies; their versions count from it."""
_MANY: Final = 10


@dataclass(frozen=True, slots=True)
class _Copies:
    """A class of copies."""

    subject: ScratchClass
    mirror: Mirror

    @classmethod
    async def of(cls, scratch: Scratch, *fields: Field) -> _Copies:
        """Prepare a class with these fields, or with one in each of two groups."""
        if not isinstance(scratch.store, Mirror):
            raise NotOffered("the store takes no copies")
        subject = await scratch.subject(*(fields or (counter(), text(group="side"))))
        return cls(subject, scratch.store)

    async def absorb(self, copy: Record, expected: Record | None, *, accepted: bool = True) -> None:
        """Absorb a copy; require the result, and the expected copy afterwards."""
        results = await self.mirror.absorb(self.subject.fragment, [copy])
        same(results, [accepted], f"absorbing {copy}")
        same(await self.subject.read(copy.id), expected, f"the copy after {copy}")

    async def replace(self, previous: Record, copy: Record, expected: Record | None) -> None:
        """Replace a copy as it was read; require the expected copy afterwards."""
        before = await self.subject.read(copy.id)
        count = await self.mirror.replace_copies(self.subject.fragment, [previous], [copy])
        same(count, int(before is not None and expected == copy), f"how many {copy} replaced")
        same(await self.subject.read(copy.id), expected, f"the copy after {copy}")


def _copy(main: int, side: int, id_: str = "x", *, creation: int = 0) -> Record:
    values: Values = {"n": main, "s": f"at {side}"}
    return Record(id_, _START + creation, {"main": _START + main, "side": _START + side}, values)


@THEME.proves("contract")
async def a_copy_is_the_record(scratch: Scratch) -> None:
    """A copy has the record's values, versions and creation version, including edge cases."""
    fields = [plain(type_, type_.value) for type_ in FieldType if type_ in EDGES]
    copies = await _Copies.of(scratch, *fields)
    for number in range(3):
        values = {f.name: EDGES[f.type][number % len(EDGES[f.type])] for f in fields}
        record = Record(f"id {number}", _START, {"main": _START + number}, values)
        await copies.absorb(record, record)


@THEME.proves("contract")
async def missing_and_null_are_copied(scratch: Scratch) -> None:
    """Fields missing from a newer record are missing from the copy; a null stays null."""
    copies = await _Copies.of(scratch)
    for copy in (_copy(0, 0), replace(_copy(1, 1), values={"s": None})):
        await copies.absorb(copy, copy)


@THEME.proves("contract")
async def an_older_copy_is_left_out(scratch: Scratch) -> None:
    """A late copy changes nothing, and counts as accepted: the stored copy is as new."""
    copies = await _Copies.of(scratch)
    for main, side in ((5, 5), (5, 5), (4, 5), (5, 4), (0, 0)):
        await copies.absorb(_copy(main, side), _copy(5, 5))


@THEME.proves("contract")
async def copies_that_cross_are_refused(scratch: Scratch) -> None:
    """A copy that is newer in one group and older in another is refused, and reported."""
    copies = await _Copies.of(scratch)
    await copies.absorb(_copy(5, 1), _copy(5, 1))
    await copies.absorb(_copy(1, 5), _copy(5, 1), accepted=False)


@THEME.proves("contract")
async def deleted_copies_stay_deleted(scratch: Scratch) -> None:
    """A late copy does not restore a forgotten object; a later generation does."""
    copies = await _Copies.of(scratch)
    subject, mirror = copies.subject, copies.mirror
    await copies.absorb(_copy(0, 0), _copy(0, 0))
    deleted = _START + 10
    await mirror.forget(subject.fragment, [("x", deleted), ("never seen", deleted)])
    same(await subject.read("x"), None, "after forgetting")
    same(await subject.store.count(subject.fragment), 0, "count")
    late = [_copy(9, 9), _copy(0, 0, "never seen")]
    same(await mirror.absorb(subject.fragment, late), [True, True], "absorbing late copies")
    same(await subject.read_all(["x", "never seen"]), [None, None], "deleted copies")
    later = _copy(11, 11, creation=11)
    await copies.absorb(later, later)
    await mirror.forget(subject.fragment, [("x", deleted)])
    same(await subject.read("x"), later, "after a late tombstone of the former generation")


@THEME.proves("contract")
async def a_later_generation_replaces_the_former(scratch: Scratch) -> None:
    """A record of a later generation replaces the copy completely, even if it lacks a group."""
    copies = await _Copies.of(scratch)
    await copies.absorb(_copy(5, 5), _copy(5, 5))
    later = Record("x", _START + 6, {"main": _START + 6}, {"n": 1})
    for copy in (later, _copy(5, 9)):
        results = await copies.mirror.absorb(copies.subject.fragment, [copy])
        same(results, [True], "absorbing the next generation, and the former again")
        replaced = present(await copies.subject.read("x"), "the next generation")
        same(replaced.values, later.values, "values")
        same(replaced.creation_version, later.creation_version, "creation version")


@THEME.proves("contract")
async def an_unchanged_copy_is_replaced_by_an_older_record(scratch: Scratch) -> None:
    """A copy that is ahead of its original, whose store has lost writes, can be repaired."""
    copies = await _Copies.of(scratch)
    await copies.absorb(_copy(5, 1), _copy(5, 1))
    await copies.replace(_copy(5, 1), _copy(1, 1), _copy(1, 1))
    partial = Record("y", _START, {"main": _START + 5}, {"n": 5})
    await copies.mirror.absorb(copies.subject.fragment, [partial])
    await copies.replace(partial, _copy(1, 1, "y"), _copy(1, 1, "y"))


@THEME.proves("contract")
async def a_copy_that_has_changed_is_not_replaced(scratch: Scratch) -> None:
    """An older record replaces only the copy as read: no other version, tombstone or absence."""
    copies = await _Copies.of(scratch)
    await copies.absorb(_copy(7, 7), _copy(7, 7))
    for stale in (_copy(5, 7), _copy(7, 9), _copy(7, 7, creation=1)):
        await copies.replace(stale, _copy(1, 1), _copy(7, 7))
    await copies.mirror.forget(copies.subject.fragment, [("x", _START)])
    await copies.replace(_copy(7, 7), _copy(1, 1), None)
    await copies.replace(_copy(7, 7, "y"), _copy(1, 1, "y"), None)


@THEME.proves("contract")
async def concurrent_copies_end_with_the_newest(scratch: Scratch) -> None:
    """Copies of many records that arrive concurrently, in any order, end with the newest."""
    copies = await _Copies.of(scratch)
    subject = copies.subject
    ids = [f"id {number}" for number in range(_MANY)]
    steps = [(7 * step) % _MANY for step in range(_MANY)]
    batches = [[_copy(step, step, id_) for id_ in ids] for step in steps]
    await concurrently(copies.mirror.absorb(subject.fragment, batch) for batch in batches)
    newest = [_copy(max(steps), max(steps), id_) for id_ in ids]
    same(await subject.read_all(ids), newest, "the copies")
    same(await subject.store.count(subject.fragment), _MANY, "count")
