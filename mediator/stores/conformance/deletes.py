"""What is left of a deleted record: nothing that a reader could see."""

from __future__ import annotations

from mediator.schema.types import FieldType
from mediator.stores.conformance.check import Theme
from mediator.stores.conformance.expect import applied, expect_status, require, same
from mediator.stores.conformance.samples import collection, counter, text
from mediator.stores.conformance.scratch import Scratch
from mediator.stores.port import Status

__all__ = ["THEME"]

THEME = Theme("deletes")


@THEME.proves("contract")
async def deleted_records_are_gone(scratch: Scratch) -> None:
    """A deleted record is neither read, scanned nor counted."""
    subject = await scratch.subject(counter())
    await subject.write_all([subject.creation(id_, {"n": 1}) for id_ in ("a", "b", "c")])
    applied(await subject.delete("b"), "DELETE")
    same(await subject.read("b"), None, "a deleted record")
    same(await subject.read("b", "n"), None, "a sparse read of a deleted record")
    scanned = await scratch.store.scan(subject.fragment, None, 10)
    same([record.id for record in scanned], ["a", "c"], "scan after DELETE")
    same(await scratch.store.count(subject.fragment), 2, "count after DELETE")


@THEME.proves("contract")
async def deleted_records_cannot_be_changed(scratch: Scratch) -> None:
    """UPDATE, DELETE and REPLACE that needs presence answer MISSING after DELETE."""
    subject = await scratch.subject(counter())
    await subject.create("x", {"n": 1})
    await subject.delete("x")
    for what, result in (
        ("UPDATE", await subject.update("x", {"n": 1})),
        ("DELETE", await subject.delete("x")),
        ("REPLACE", await subject.replace("x", {"n": 1}, require_present=True)),
    ):
        expect_status(result, Status.MISSING, f"{what} of a deleted record")
    same(await subject.read("x"), None, "after all that")


@THEME.proves("contract")
async def nothing_is_resurrected(scratch: Scratch) -> None:
    """A record created again under the id of a deleted one has none of its values."""
    subject = await scratch.subject(
        counter(index=True), text("s"), collection(FieldType.LIST, FieldType.STRING, "l")
    )
    for remake in (subject.create, subject.replace):
        await subject.replace("x", {"n": 1, "s": "old", "l": ["old"]})
        applied(await subject.delete("x"), "DELETE")
        result = applied(await remake("x", {"n": 2}), "making the record again")
        require(result.created, "making a deleted record again must say that it created")
        same(await subject.values("x"), {"n": 2}, "a record created again")
        same(await scratch.store.count(subject.fragment), 1, "count")
