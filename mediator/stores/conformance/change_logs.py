"""Change logs as logs: in order, each change once, read from any position, trimmed with care."""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Final

from mediator.base.concurrency import concurrently
from mediator.model.change import Change, change_id
from mediator.model.operators import Operator, OperatorCall
from mediator.schema.types import FieldType, Values
from mediator.stores.conformance.change_reader import ChangeReader, change_log
from mediator.stores.conformance.check import Theme
from mediator.stores.conformance.expect import applied, require, same
from mediator.stores.conformance.samples import HOSTILE_TEXTS, collection, counter, text
from mediator.stores.conformance.scratch import Scratch

__all__ = ["THEME"]

THEME = Theme("change_logs")

_WRITERS: Final = 16
_ROUNDS: Final = 4
_YEARS_S: Final = 10 * 365 * 86_400.0
"""So long that no entry of others in a shared log is old enough to be trimmed."""


@THEME.proves("contract")
async def changes_of_concurrent_writers_are_in_order(scratch: Scratch) -> None:
    """Versions of many writers of one record rise in the log; each change starts from the last."""
    reader = await ChangeReader.to(scratch, counter())
    subject = reader.subject
    applied(await subject.create("x", {"n": 0}))
    add = OperatorCall("n", Operator.INC, 1)

    async def work(writer: int) -> None:
        for round_ in range(_ROUNDS):
            if writer % 4:
                await subject.update("x", operators=(add,))
            else:
                await subject.replace("x", {"n": 1000 * writer + round_})

    await concurrently(map(work, range(_WRITERS)))
    changes = await reader.changes_of("x")
    same(len(changes), _WRITERS * _ROUNDS + 1, "changes")
    _check_rising(changes)
    for earlier, later in pairwise(changes):
        same(later.before, earlier.after, "what was there before a change")


@THEME.proves("contract")
async def each_of_many_writes_is_logged_once(scratch: Scratch) -> None:
    """Writes of one call on many records, and of concurrent calls, are logged once each."""
    reader = await ChangeReader.to(scratch, counter(), counter("m", group="side"))
    subject = reader.subject
    batches = [
        [subject.replacement(f"{b}.{i % 40}", {"n": i}) for i in range(60)] for b in range(4)
    ]
    await concurrently(map(subject.write_all, batches))
    ids = [change_id(w.operation, g) for batch in batches for w in batch for g in w.groups]
    await reader.until(set(ids))
    same(Counter(change.id for change in reader.changes()), Counter(ids), "changes")
    for id_ in {write.id for batch in batches for write in batch}:
        _check_rising(reader.changes(id_))


def _check_rising(changes: list[Change]) -> None:
    for group in {change.group for change in changes}:
        versions = [change.version for change in changes if change.group == group]
        require(all(a < b for a, b in pairwise(versions)), "versions of a group do not rise")


@THEME.proves("contract")
async def hostile_names_are_logged(scratch: Scratch) -> None:
    """Ids of objects and operations with meanings elsewhere are logged unchanged."""
    reader = await ChangeReader.to(scratch, counter())
    writes = [
        reader.subject.creation(text_, {"n": 1}, operation=f"{text_} {uuid.uuid4().hex}")
        for text_ in HOSTILE_TEXTS
    ]
    await reader.subject.apply_all(writes)
    await reader.until({change_id(write.operation, "main") for write in writes})
    same(
        {change.object_id: change.id for change in reader.changes()},
        {write.id: change_id(write.operation, "main") for write in writes},
        "objects and changes",
    )


@THEME.proves("contract")
async def logs_are_read_from_any_position(scratch: Scratch) -> None:
    """From any position, in pages of any size, exactly the following changes are returned."""
    reader, store = await ChangeReader.to(scratch, counter()), change_log(scratch.store)
    for n in range(10):
        applied(await reader.subject.replace("x", {"n": n}))
    await reader.changes_of("x")
    log, positions = reader.positions()

    async def read(after: str, limit: int) -> list[str]:
        page = await store.changes(log, after, limit, reader.of_class)
        count = len(page.entries)
        require(count <= limit, f"{count} entries for a limit of {limit}")
        require(count > 0 or page.is_last, "a page without entries is not the last one")
        require(count == limit or page.is_last, "a page of small entries is not filled")
        return [entry.position for entry in page.entries if entry.change is not None]

    for position, after in enumerate(positions):
        same(await read(after, 1_000), positions[position + 1 :], f"beyond entry {position}")
    same(await read(positions[0], 3), positions[1:4], "three entries")
    oldest = await store.oldest(log)
    require(oldest is not None and oldest <= positions[0], "the oldest entry is not the oldest")


@THEME.proves("contract")
async def entries_stay(scratch: Scratch) -> None:
    """Trimming keeps young entries; entries of an unknown class have a position but no change."""
    store, reader = change_log(scratch.store), await ChangeReader.to(scratch, counter())
    applied(await reader.subject.create("x", {"n": 1}))
    await reader.changes_of("x")
    log, (first, second) = reader.positions()
    await store.trim(log, second, _YEARS_S)
    entries = (await store.changes(log, first, 1_000, lambda *_: None)).entries
    same([e.change for e in entries if e.position == second], [None], "a young entry of no class")


@THEME.proves("contract")
async def a_later_schema_leaves_out_unknown_fields(scratch: Scratch) -> None:
    """Fields that were removed, or have another type by now, are left out; others are returned."""
    items = collection(FieldType.LIST, FieldType.INTEGER, "l")
    reader = await ChangeReader.to(scratch, counter(), text("gone"), counter("was"), items)
    values: Values = {"n": 1, "gone": "a", "was": 5, "l": [1]}
    applied(await reader.subject.create("x", values))
    fields = {"n": counter(), "was": text("was"), "l": replace(items, items=FieldType.STRING)}
    current = replace(reader.subject.fragment, fields=fields, groups={"main": tuple(fields)})
    reader.fragment = current
    applied(await reader.subject.update("x", {"gone": "b"}))
    first, second, *_ = await reader.changes_of("x")
    same(first.after, {"n": 1}, "image of a creation")
    same((second.before, second.after), ({}, {}), "images of a removed field")
