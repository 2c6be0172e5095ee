"""Preparing, changing and dropping classes; the facts that a server reports."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace

from mediator.base.concurrency import concurrently
from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.stores.conformance.check import Theme
from mediator.stores.conformance.expect import NotOffered, applied, expect_status, require, same
from mediator.stores.conformance.samples import collection, counter, text
from mediator.stores.conformance.scratch import SCRATCH_DATABASE, Scratch, ScratchClass
from mediator.stores.port import Reapable, Status

__all__ = ["THEME"]

THEME = Theme("lifecycle")


async def _reshape(
    scratch: Scratch, subject: ScratchClass, fields: Sequence[Field]
) -> ScratchClass:
    """Prepare the same class with other fields."""
    previous = subject.fragment
    changed = scratch.fragment(previous.class_name, fields, schema_version=2)
    return await scratch.prepare(changed, previous)


@THEME.proves("contract")
async def the_server_describes_itself(scratch: Scratch) -> None:
    """The server answers a ping, and has a name, a version and a valid durability."""
    await scratch.store.ping()
    facts = await scratch.store.facts()
    require(bool(facts.server and facts.version), f"no server or no version in {facts}")
    durability, replicas = facts.durability_s, facts.replicas
    require(durability is None or durability >= 0, f"durability of {durability} s")
    require(replicas is None or replicas >= 0, f"{replicas} replicas")


@THEME.proves("contract")
async def preparing_again_keeps_data(scratch: Scratch) -> None:
    """Preparing a class twice changes nothing."""
    subject = await scratch.subject(counter(index=True), text())
    await subject.create("x", {"n": 1, "s": "one"})
    before = await subject.read("x")
    for previous in (None, subject.fragment):
        prepared_again = await scratch.prepare(replace(subject.fragment), previous)
        same(await prepared_again.read("x"), before, "a record after preparing again")


@THEME.proves("contract")
async def classes_are_prepared_concurrently(scratch: Scratch) -> None:
    """Several processes can prepare the same classes of a new database at the same time."""
    database = f"{SCRATCH_DATABASE}_{uuid.uuid4().hex}"
    fields = [counter(index=True)]
    fragments = [scratch.fragment(name, fields, database=database) for name in "ab" * 3]
    subjects = await concurrently(map(scratch.prepare, fragments))
    for n, subject in enumerate(subjects):
        applied(await subject.create(f"x{n}", {"n": n}), "CREATE in a class prepared thrice")
    same(await scratch.store.count(subjects[0].fragment), 3, "count")


@THEME.proves("contract")
async def added_fields_keep_data(scratch: Scratch) -> None:
    """A class can be given more fields and groups; its records miss them until written."""
    subject = await scratch.subject(counter())
    await subject.create("x", {"n": 1})
    before = await subject.versions("x")
    fields = [counter(), text(), collection(FieldType.LIST, FieldType.STRING, "l", group="side")]
    wider = await _reshape(scratch, subject, fields)
    same(await wider.values("x"), {"n": 1}, "a record of before")
    same((await wider.versions("x"))["main"], before["main"], "its version")
    result = applied(await wider.update("x", {"s": "new", "l": ["new"]}), "UPDATE of new fields")
    require("side" in result.versions, "the new group got no version when it was written")
    same(await wider.values("x"), {"n": 1, "s": "new", "l": ["new"]}, "after the UPDATE")


@THEME.proves("contract")
async def added_indexes_order_old_records(scratch: Scratch) -> None:
    """An index added to a field orders existing records."""
    subject = await scratch.subject(counter())
    await subject.write_all([subject.creation(id_, {"n": ord(id_)}) for id_ in "cab"])
    await subject.create("none")
    indexed = await _reshape(scratch, subject, [counter(index=True)])
    records = await indexed.in_order("n")
    if records is None:
        raise NotOffered("the store does not order by an indexed field")
    same([record.id for record in records], ["none", "a", "b", "c"], "order by the new index")


@THEME.proves("contract")
async def dropping_leaves_nothing(scratch: Scratch) -> None:
    """A class dropped and prepared again is empty, and remembers no operation."""
    subject = await scratch.subject(
        counter(index=True), collection(FieldType.LIST, FieldType.STRING)
    )
    write = subject.creation("x", {"n": 1, "value": ["old"]}, remember="f")
    applied(await subject.write(write), "CREATE")
    await scratch.store.drop(subject.fragment)
    prepared_again = await scratch.prepare(replace(subject.fragment))
    same(await prepared_again.read("x"), None, "a record of the dropped class")
    same(await scratch.store.count(prepared_again.fragment), 0, "count")
    same(await scratch.store.scan(prepared_again.fragment, None, 5), [], "scan")
    same(await prepared_again.in_order("n") or [], [], "search")
    remembered = await scratch.store.recall(prepared_again.fragment, "x", write.operation)
    require(remembered is None, "an operation of the dropped class is recalled")
    applied(await prepared_again.create("x", {"n": 2}), "CREATE in the class prepared again")
    same(await prepared_again.values("x"), {"n": 2}, "the new record")


@THEME.proves("contract")
async def dropping_spares_other_classes(scratch: Scratch) -> None:
    """Dropping one class leaves the others, and dropping it twice is no error."""
    first, second = await scratch.subject(counter()), await scratch.subject(counter())
    await first.create("x", {"n": 1})
    await second.create("x", {"n": 2})
    await scratch.store.drop(first.fragment)
    await scratch.store.drop(first.fragment)
    same(await second.values("x"), {"n": 2}, "a record of the other class")


@THEME.proves("contract")
async def reaping_keeps_retained_entries(scratch: Scratch) -> None:
    """Reaping removes nothing within its retention."""
    if not isinstance(scratch.store, Reapable):
        raise NotOffered("what the store retains expires by itself")
    subject = await scratch.subject(counter())
    write = subject.creation("x", {"n": 1}, remember="f")
    applied(await subject.write(write), "CREATE")
    deleted = applied(await subject.create("gone", {"n": 1}))
    tombstone = applied(await subject.delete("gone"))
    require(await scratch.store.reap(100) >= 0, "reap did not return how many it removed")
    same(await subject.values("x"), {"n": 1}, "a record after reaping")
    expect_status(await subject.write(write), Status.REPLAYED, "a replay after reaping")
    recreated = applied(await subject.create("gone", {"n": 1}))
    floor = max(*deleted.versions.values(), *tombstone.versions.values())
    require(min(recreated.versions.values()) > floor, "reaping lost a version")
