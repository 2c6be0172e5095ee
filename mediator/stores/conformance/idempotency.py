"""An operation that is remembered takes effect once, however often it is sent."""

from __future__ import annotations

from mediator.model.operators import Operator, OperatorCall
from mediator.schema.types import FieldType
from mediator.stores.conformance.check import Theme
from mediator.stores.conformance.expect import (
    ConformanceFailure,
    applied,
    expect_status,
    require,
    same,
)
from mediator.stores.conformance.samples import counter, text
from mediator.stores.conformance.scratch import Scratch
from mediator.stores.port import Status, WriteResult

__all__ = ["THEME"]

THEME = Theme("idempotency")


def _same_result(again: WriteResult, first: WriteResult, what: str) -> None:
    expect_status(again, Status.REPLAYED, what)
    _same_effect(again, first, what)


def _same_effect(again: WriteResult, first: WriteResult, what: str) -> None:
    for name in ("versions", "creation_version", "created", "values"):
        same(getattr(again, name), getattr(first, name), f"{name}: {what}")


@THEME.proves("contract")
async def every_kind_is_replayed(scratch: Scratch) -> None:
    """CREATE, UPDATE, REPLACE and DELETE sent again answer what they answered, and do nothing."""
    subject = await scratch.subject(counter(), text(group="side"))
    for write in (
        subject.creation("x", {"n": 1}, remember="f", returning=()),
        subject.change("x", {"n": 2, "s": "é"}, remember="f", returning=("s",)),
        subject.replacement("x", {"n": 3}, remember="f", returning=()),
        subject.deletion("x", remember="f"),
    ):
        first = applied(await subject.write(write), write.kind.name)
        state = await subject.read("x")
        _same_result(await subject.write(write), first, f"{write.kind.name} sent again")
        same(await subject.read("x"), state, f"the record after {write.kind.name} sent again")


@THEME.proves("contract")
async def replays_answer_as_of_then(scratch: Scratch) -> None:
    """A replay after later writes, and after deletion, answers the result and values of then."""
    subject = await scratch.subject(counter(), text())
    await subject.create("x", {"n": 1, "s": "then"})
    write = subject.change("x", {"n": 2}, remember="f", returning=())
    first = applied(await subject.write(write), "UPDATE")
    for later in (subject.change("x", {"n": 9, "s": "later"}), subject.deletion("x")):
        applied(await subject.write(later), later.kind.name)
        _same_result(await subject.write(write), first, f"a replay after {later.kind.name}")
    same(await subject.read("x"), None, "a deleted record after a replay")


@THEME.proves("contract")
async def counters_are_not_moved_by_replays(scratch: Scratch) -> None:
    """An increment sent five times in one call is applied once."""
    if not scratch.store.supports(Operator.INC, FieldType.INTEGER):
        return
    subject = await scratch.subject(counter())
    await subject.create("x", {"n": 0})
    add = OperatorCall("n", Operator.INC, 1)
    write = subject.change("x", operators=(add,), remember="f", returning=("n",))
    results = await subject.write_all([write] * 5)
    statuses = [result.status for result in results]
    same(statuses, [Status.APPLIED, *[Status.REPLAYED] * 4], "one write five times in one call")
    same([dict(r.values) for r in results], [{"n": 1}] * 5, "values returned")
    same(await subject.values("x"), {"n": 1}, "the counter")


@THEME.proves("contract")
async def reuse_is_reported(scratch: Scratch) -> None:
    """An operation id that comes with another fingerprint answers REUSED, and nothing is done."""
    subject = await scratch.subject(counter())
    await subject.create("x", {"n": 1}, operation="one", remember="f")
    other = {"operation": "one", "remember": "g"}
    creation = subject.creation("x", {"n": 2}, **other)
    for write in (creation, *subject.every_kind("x", {"n": 2}, **other)):
        result = await subject.write(write)
        expect_status(result, Status.REUSED, f"{write.kind.name} under an id used before")
        same(await subject.values("x"), {"n": 1}, f"after {write.kind.name}")


@THEME.proves("contract")
async def replay_comes_before_conditions(scratch: Scratch) -> None:
    """A write whose condition no longer holds because it was applied is still a replay."""
    subject = await scratch.subject(counter())
    versions = applied(await subject.create("x", {"n": 1})).versions
    write = subject.change("x", {"n": 2}, expect=versions, remember="f")
    first = applied(await subject.write(write), "a conditional UPDATE")
    _same_result(await subject.write(write), first, "a conditional UPDATE sent again")


@THEME.proves("contract")
async def what_failed_is_tried_again(scratch: Scratch) -> None:
    """A write that had no effect is not remembered: sent again, it is decided anew."""
    subject = await scratch.subject(counter())
    write = subject.change("x", {"n": 2}, remember="f")
    expect_status(await subject.write(write), Status.MISSING, "UPDATE of nothing")
    recalled = await scratch.store.recall(subject.fragment, "x", write.operation)
    require(recalled is None, "a write without effect is remembered")
    await subject.create("x", {"n": 1})
    applied(await subject.write(write), "UPDATE sent again when the record is there")


@THEME.proves("contract")
async def operations_can_be_recalled(scratch: Scratch) -> None:
    """What is remembered of an operation is its fingerprint and its result; else None."""
    subject = await scratch.subject(counter())
    write = subject.creation("x", {"n": 1}, remember="fingerprint é", returning=())
    first = applied(await subject.write(write), "CREATE")
    await subject.delete("x")
    recalled = await scratch.store.recall(subject.fragment, "x", write.operation)
    if recalled is None:
        raise ConformanceFailure("an operation that was remembered cannot be recalled")
    same(recalled.fingerprint, "fingerprint é", "the fingerprint recalled")
    _same_effect(recalled.result, first, "the result recalled")
    for id_, operation in (("x", "unknown"), ("y", "unknown")):
        unknown = await scratch.store.recall(subject.fragment, id_, operation)
        require(unknown is None, "an operation that never was is recalled")
