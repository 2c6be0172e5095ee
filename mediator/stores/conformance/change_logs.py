"""Change logs as logs: in order, each change once, read from anywhere, trimmed with care."""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Final

from mediator.model.change import Change, change_id
from mediator.model.operators import Operator, OperatorCall
from mediator.schema.types import FieldType, Values
from mediator.stores.conformance.check import Theme
from mediator.stores.conformance.expect import applied, require, same
from mediator.stores.conformance.samples import HOSTILE_TEXTS, collection, counter, text
from mediator.stores.conformance.scratch import Scratch, gathered
from mediator.stores.conformance.told import Listener, change_log

__all__ = ["THEME"]

THEME = Theme("change_logs")

_WRITERS: Final = 16
_ROUNDS: Final = 4
_YEARS_S: Final = 10 * 365 * 86_400.0
"""So long that nothing of anybody else's, in a log that is shared, is old enough to go."""


@THEME.proves("contract")
async def writers_of_one_record_are_told_in_order(scratch: Scratch) -> None:
    """Of many writers of one record, versions rise in the log, and each goes on from the last."""
    listener = await Listener.to(scratch, counter())
    subject = listener.subject
    applied(await subject.create("x", {"n": 0}))
    add = OperatorCall("n", Operator.INC, 1)

    async def work(writer: int) -> None:
        for round_ in range(_ROUNDS):
            if writer % 4:
                await subject.update("x", operators=(add,))
            else:
                await subject.replace("x", {"n": 1000 * writer + round_})

    await gathered(map(work, range(_WRITERS)))
    changes = await listener.changes_of("x")
    same(len(changes), _WRITERS * _ROUNDS + 1, "changes told")
    require(all(a.version < b.version for a, b in pairwise(changes)), "versions do not rise")
    for earlier, later in pairwise(changes):
        same(later.before, earlier.after, "what was there before a change")


@THEME.proves("contract")
async def each_write_of_many_is_told_once(scratch: Scratch) -> None:
    """Writes of one call on many records, and of many calls at once, are told once each."""
    listener = await Listener.to(scratch, counter(), counter("m", group="side"))
    subject = listener.subject
    batches = [
        [subject.replacement(f"{b}.{i % 40}", {"n": i}) for i in range(60)] for b in range(4)
    ]
    await gathered(map(subject.write_all, batches))
    ids = [change_id(w.operation, g) for batch in batches for w in batch for g in w.groups]
    await listener.until(set(ids))
    same(Counter(change.id for change in listener.changes()), Counter(ids), "changes told")
    for id_ in {write.id for batch in batches for write in batch}:
        _check_rising(listener.changes(id_))


def _check_rising(changes: list[Change]) -> None:
    for group in {change.group for change in changes}:
        versions = [change.version for change in changes if change.group == group]
        require(all(a < b for a, b in pairwise(versions)), "versions of a group do not rise")


@THEME.proves("contract")
async def hostile_names_are_told(scratch: Scratch) -> None:
    """Ids of objects and operations that mean something to somebody are told as they are."""
    listener = await Listener.to(scratch, counter())
    writes = [
        listener.subject.creation(text_, {"n": 1}, operation=f"{text_} {uuid.uuid4().hex}")
        for text_ in HOSTILE_TEXTS
    ]
    for result in await listener.subject.write_all(writes):
        applied(result)
    await listener.until({change_id(write.operation, "main") for write in writes})
    same(
        {change.object_id: change.id for change in listener.changes()},
        {write.id: change_id(write.operation, "main") for write in writes},
        "objects and changes",
    )


@THEME.proves("contract")
async def reading_goes_on_anywhere(scratch: Scratch) -> None:
    """From any position on, in portions of any size, the rest is told, and nothing else."""
    listener, store = await Listener.to(scratch, counter()), change_log(scratch.store)
    for n in range(10):
        applied(await listener.subject.replace("x", {"n": n}))
    await listener.changes_of("x")
    log, whole = listener.positions()

    async def read(after: str, limit: int) -> list[str]:
        some = await store.changes(log, after, limit, listener.of_class)
        require(len(some) <= limit, f"{len(some)} entries where {limit} were asked for")
        return [entry.position for entry in some if entry.change is not None]

    for place, after in enumerate(whole):
        same(await read(after, 1_000), whole[place + 1 :], f"beyond entry {place}")
    same(await read(whole[0], 3), whole[1:4], "three entries")
    oldest = await store.oldest(log)
    require(oldest is not None and oldest <= whole[0], "the oldest entry is not the oldest")


@THEME.proves("contract")
async def trimming_keeps_what_is_young(scratch: Scratch) -> None:
    """Trimming removes nothing that is younger than it is told to keep."""
    listener, store = await Listener.to(scratch, counter()), change_log(scratch.store)
    applied(await listener.subject.create("x", {"n": 1}))
    await listener.changes_of("x")
    log, (first, second) = listener.positions()
    await store.trim(log, second, _YEARS_S)
    rest = await store.changes(log, first, 1_000, listener.of_class)
    require(second in [entry.position for entry in rest], "trimming removed a young entry")


def _nowhere(_database: str, _class_name: str) -> None:
    return None


@THEME.proves("contract")
async def a_class_that_is_gone_is_not_told(scratch: Scratch) -> None:
    """Entries of a class that nobody knows keep their positions, without a change."""
    listener, store = await Listener.to(scratch, counter()), change_log(scratch.store)
    applied(await listener.subject.create("x", {"n": 1}))
    await listener.changes_of("x")
    log, (first, second) = listener.positions()
    entries = await store.changes(log, first, 1_000, _nowhere)
    same([e.change for e in entries if e.position == second], [None], "an entry of no class")


@THEME.proves("contract")
async def a_later_schema_leaves_out_what_it_does_not_know(scratch: Scratch) -> None:
    """Fields that are gone, or of another type by now, are left out; the others are told."""
    items = collection(FieldType.LIST, FieldType.INTEGER, "l")
    listener = await Listener.to(scratch, counter(), text("gone"), counter("was"), items)
    values: Values = {"n": 1, "gone": "a", "was": 5, "l": [1]}
    applied(await listener.subject.create("x", values))
    fields = {"n": counter(), "was": text("was"), "l": replace(items, items=FieldType.STRING)}
    now = replace(listener.subject.fragment, fields=fields, groups={"main": tuple(fields)})
    listener.fragment = now
    applied(await listener.subject.update("x", {"gone": "b"}))
    first, second, *_ = await listener.changes_of("x")
    same(first.after, {"n": 1}, "told of a creation")
    same((second.before, second.after), ({}, {}), "told of a field that is gone")
