"""Guarantees for retries: operations take effect once, and fences stop late writes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from mediator.model.operators import Operator, OperatorCall
from mediator.schema.types import FieldType
from mediator.stores.conformance.change_reader import relay
from mediator.stores.conformance.check import Theme
from mediator.stores.conformance.expect import (
    ConformanceFailure,
    applied,
    expect_status,
    expect_statuses,
    present,
    require,
    same,
)
from mediator.stores.conformance.samples import HOSTILE_TEXTS, counter, text
from mediator.stores.conformance.scratch import Scratch, ScratchClass
from mediator.stores.port import Status, Write, WriteResult

__all__ = ["FENCING", "IDEMPOTENCY", "race", "racing_writes"]

IDEMPOTENCY = Theme("idempotency")
FENCING = Theme("fencing")

NAME: Final = "a write"
ROUNDS: Final = 12
MANY: Final = 300
"""Operations on one record."""


def _same_result(repeated: WriteResult, first: WriteResult, label: str) -> None:
    expect_status(repeated, Status.REPLAYED, label)
    _same_effect(repeated, first, label)


def _same_effect(repeated: WriteResult, first: WriteResult, label: str) -> None:
    for name in ("versions", "creation_version", "created", "values"):
        same(getattr(repeated, name), getattr(first, name), f"{name}: {label}")


@IDEMPOTENCY.proves("contract")
async def every_kind_is_replayed(scratch: Scratch) -> None:
    """Repeated CREATE, UPDATE, REPLACE and DELETE return the first result, and do nothing."""
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


@IDEMPOTENCY.proves("contract")
async def replays_return_the_original_result(scratch: Scratch) -> None:
    """A replay after later writes, and after deletion, returns the original result and values."""
    subject = await scratch.subject(counter(), text())
    await subject.create("x", {"n": 1, "s": "then"})
    write = subject.change("x", {"n": 2}, remember="f", returning=())
    first = applied(await subject.write(write), "UPDATE")
    for later in (subject.change("x", {"n": 9, "s": "later"}), subject.deletion("x")):
        applied(await subject.write(later), later.kind.name)
        _same_result(await subject.write(write), first, f"a replay after {later.kind.name}")
    same(await subject.read("x"), None, "a deleted record after a replay")


@IDEMPOTENCY.proves("contract")
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


@IDEMPOTENCY.proves("contract")
async def none_of_many_operations_is_forgotten(scratch: Scratch) -> None:
    """Each of many operations on one record is replayed, however many came after it."""
    if not scratch.store.supports(Operator.INC, FieldType.INTEGER):
        return
    subject = await scratch.subject(counter())
    await subject.create("x", {"n": 0})
    add = OperatorCall("n", Operator.INC, 1)
    writes = [
        subject.change("x", operators=(add,), remember="f", returning=("n",)) for _ in range(MANY)
    ]
    first = await subject.write_all(writes)
    expect_statuses(first, [Status.APPLIED] * MANY, "many operations on one record")
    repeated = await subject.write_all(writes)
    expect_statuses(repeated, [Status.REPLAYED] * MANY, "many operations sent again")
    same([dict(r.values) for r in repeated], [dict(r.values) for r in first], "values returned")
    same(await subject.values("x"), {"n": MANY}, "the counter")


@IDEMPOTENCY.proves("contract")
async def reuse_is_reported(scratch: Scratch) -> None:
    """An operation id with another fingerprint gets REUSED, and nothing is done."""
    subject = await scratch.subject(counter())
    await subject.create("x", {"n": 1}, operation="one", remember="f")
    other = {"operation": "one", "remember": "g"}
    creation = subject.creation("x", {"n": 2}, **other)
    for write in (creation, *subject.every_kind("x", {"n": 2}, **other)):
        result = await subject.write(write)
        expect_status(result, Status.REUSED, f"{write.kind.name} under an id used before")
        same(await subject.values("x"), {"n": 1}, f"after {write.kind.name}")


@IDEMPOTENCY.proves("contract")
async def replay_comes_before_conditions(scratch: Scratch) -> None:
    """A write whose condition no longer holds because it was applied is still a replay."""
    subject = await scratch.subject(counter())
    versions = applied(await subject.create("x", {"n": 1})).versions
    write = subject.change("x", {"n": 2}, expect=versions, remember="f")
    first = applied(await subject.write(write), "a conditional UPDATE")
    _same_result(await subject.write(write), first, "a conditional UPDATE sent again")


@IDEMPOTENCY.proves("contract")
async def updates_without_groups_are_remembered(scratch: Scratch) -> None:
    """An UPDATE without groups makes no version, and is replayed with the original values."""
    subject = await scratch.subject(counter(), text(group="side"))
    await subject.create("x", {"n": 1, "s": "then"})
    state = present(await subject.read("x"), "the record")
    await relay(subject, ["x"])
    write = subject.change("x", expect=state.versions, remember="f", returning=())
    first = applied(await subject.write(write), "UPDATE of no group")
    same((first.versions, first.values), (state.versions, state.values), "the result")
    same(await relay(subject, ["x"]), [], "changes to be relayed")
    same(await subject.read("x"), state, "the record after an UPDATE of no group")
    applied(await subject.update("x", {"n": 9}), "a later UPDATE")
    _same_result(await subject.write(write), first, "UPDATE of no group sent again")
    other = replace(write, remember="g")
    expect_status(await subject.write(other), Status.REUSED, "its id with another fingerprint")
    late = replace(write, operation="late")
    expect_status(await subject.write(late), Status.CONFLICT, "one of versions that are outdated")
    same(await subject.values("x"), {"n": 9, "s": "then"}, "the record in the end")


@IDEMPOTENCY.proves("contract")
async def writes_without_effect_are_not_remembered(scratch: Scratch) -> None:
    """A write without effect is not remembered: a retry is decided afresh."""
    subject = await scratch.subject(counter())
    write = subject.change("x", {"n": 2}, remember="f")
    expect_status(await subject.write(write), Status.MISSING, "UPDATE of nothing")
    remembered = await scratch.store.recall(subject.fragment, "x", write.operation)
    require(remembered is None, "a write without effect is remembered")
    await subject.create("x", {"n": 1})
    applied(await subject.write(write), "UPDATE sent again when the record is there")


@IDEMPOTENCY.proves("contract")
async def operations_can_be_recalled(scratch: Scratch) -> None:
    """A remembered operation has its fingerprint and its result; an unknown one is None."""
    subject = await scratch.subject(counter())
    write = subject.creation("x", {"n": 1}, remember="fingerprint é", returning=())
    first = applied(await subject.write(write), "CREATE")
    await subject.delete("x")
    remembered = await scratch.store.recall(subject.fragment, "x", write.operation)
    if remembered is None:
        raise ConformanceFailure("an operation that was remembered cannot be recalled")
    same(remembered.fingerprint, "fingerprint é", "the fingerprint recalled")
    _same_effect(remembered.result, first, "the result recalled")
    for id_, operation in (("x", "unknown"), ("y", "unknown")):
        unknown = await scratch.store.recall(subject.fragment, id_, operation)
        require(unknown is None, "an operation that never was is recalled")


async def _send(subject: ScratchClass, write: Write, token: str = NAME) -> WriteResult:
    [result] = await subject.store.write([write], token)
    return result


async def _fence(subject: ScratchClass, id_: str, token: str = NAME) -> dict[str, int]:
    return dict(await subject.store.fence(subject.fragment, id_, token))


@FENCING.proves("contract")
async def a_fenced_token_writes_no_more(scratch: Scratch) -> None:
    """Writes of a fenced token, of any kind, get FENCED and do nothing."""
    subject = await scratch.subject(counter(), counter("m", group="side"))
    versions = applied(await subject.create("x", {"n": 1, "m": 1})).versions
    same(await _fence(subject, "x"), versions, "versions that the fence returns")
    state = await subject.read("x")
    for write in (
        subject.change("x", {"n": 2}),
        subject.change("x", {"n": 2}, remember="f", returning=()),
        subject.change("x", {"n": 2}, expect={"main": versions["main"]}),
        subject.change("x", unset=("m",)),
        subject.replacement("x", {"n": 2}),
        subject.replacement("x", {"n": 2}, remember="f"),
        subject.deletion("x"),
        subject.deletion("x", expect={"main": versions["main"]}),
    ):
        result = await _send(subject, write)
        expect_status(result, Status.FENCED, f"{write.kind.name} of a fenced token")
        same(await subject.read("x"), state, f"the record after {write.kind.name}")


@FENCING.proves("contract")
async def other_tokens_are_not_fenced(scratch: Scratch) -> None:
    """Writes of another token, or of none, are not stopped by a fence."""
    subject = await scratch.subject(counter())
    await subject.create("x", {"n": 1})
    await _fence(subject, "x")
    applied(await _send(subject, subject.change("x", {"n": 2}), "another"), "another token")
    applied(await _send(subject, subject.replacement("x", {"n": 3}), ""), "no token")
    applied(await subject.delete("x"), "DELETE without a token")
    applied(await _send(subject, subject.creation("x", {"n": 4}), "another"), "CREATE after that")
    result = await _send(subject, subject.change("x", {"n": 5}))
    expect_status(result, Status.FENCED, "the fenced token, after the record was created again")
    same(await subject.values("x"), {"n": 4}, "the record")


@FENCING.proves("contract")
async def absent_records_are_fenced(scratch: Scratch) -> None:
    """A late creation finds the fence, although there was no record to fence."""
    subject = await scratch.subject(counter())
    for id_ in ("x", *filter(None, HOSTILE_TEXTS)):
        same(await _fence(subject, id_), {}, "versions of an object that never was")
        for write in (
            subject.creation(id_, {"n": 1}),
            subject.creation(id_, {"n": 1}, remember="f"),
            subject.replacement(id_, {"n": 1}),
            subject.replacement(id_, {"n": 1}, remember="f"),
        ):
            expect_status(await _send(subject, write), Status.FENCED, f"a late {write.kind.name}")
        same(await subject.read(id_), None, "the record that was not created")
    same(await scratch.store.count(subject.fragment), 0, "count")
    same(await scratch.store.scan(subject.fragment, None, 10), [], "scan")
    result = applied(await subject.create("x", {"n": 2}), "a creation without the token")
    require(result.created, "a creation after a fence must say that it created")
    same(await subject.values("x"), {"n": 2}, "the record")


@FENCING.proves("contract")
async def a_fence_returns_applied_versions(scratch: Scratch) -> None:
    """A fence returns the versions of an earlier write, or of the tombstone after a deletion."""
    subject = await scratch.subject(counter(), counter("m", group="side"))
    created = applied(await _send(subject, subject.creation("x", {"n": 1}), "a"))
    same(await _fence(subject, "x", "a"), created.versions, "versions after CREATE")
    changed = applied(await _send(subject, subject.change("x", {"n": 2}), "b"))
    same(await _fence(subject, "x", "b"), changed.versions, "versions after UPDATE")
    deleted = applied(await _send(subject, subject.deletion("x"), "c"))
    same(await _fence(subject, "x", "c"), deleted.versions, "versions of the tombstone")
    same(await _fence(subject, "x", "c"), deleted.versions, "versions returned a second time")


@FENCING.proves("contract")
async def a_fence_is_for_one_record(scratch: Scratch) -> None:
    """Of writes of one token in one call, only those to the fenced record are stopped."""
    subject = await scratch.subject(counter())
    other = await scratch.subject(counter())
    ids = [f"{i}" for i in range(20)]
    await subject.write_all([subject.creation(id_, {"n": 0}) for id_ in ids])
    await other.create("7", {"n": 0})
    await _fence(subject, "7")
    writes = [subject.change(id_, {"n": 1}) for id_ in ids] + [other.change("7", {"n": 1})]
    results = await scratch.store.write(writes, NAME)
    expected = [Status.FENCED if id_ == "7" else Status.APPLIED for id_ in ids]
    expect_statuses(results, [*expected, Status.APPLIED], "writes of one token")
    same(await subject.values("7"), {"n": 0}, "the fenced record")


@FENCING.proves("contract")
async def replays_are_still_answered(scratch: Scratch) -> None:
    """A remembered operation that took effect before the fence is still replayed."""
    subject = await scratch.subject(counter())
    write = subject.creation("x", {"n": 1}, remember="f")
    first = applied(await _send(subject, write))
    await _fence(subject, "x")
    retry = expect_status(await _send(subject, write), Status.REPLAYED, "a retry after a fence")
    same(retry.versions, first.versions, "versions of the retry")


def racing_writes(subject: ScratchClass) -> Iterator[Write]:
    """Yield many rounds of writes to the record `old` and creations."""
    for round_ in range(ROUNDS):
        yield subject.change("old", {"n": round_})
        yield subject.replacement("old", {"n": round_}, remember="f")
        yield subject.replacement(f"new{round_}", {"n": round_})
        yield subject.creation(f"created{round_}", {"n": round_})


async def race(
    subject: ScratchClass,
    write: Write,
    sending: Coroutine[Any, Any, WriteResult],
    stopping: Awaitable[Mapping[str, int]],
    refusal: Status,
) -> None:
    """Require that a write is in the versions returned by what stops it, or has not happened."""
    before = await subject.read(write.id)
    task = asyncio.ensure_future(sending)
    await asyncio.sleep(0)  # the write is in flight when it is stopped
    versions = await stopping
    result = await task
    if result.status is Status.APPLIED:
        same(versions, result.versions, f"versions of a faster {write.kind.name}")
    else:
        expect_status(result, refusal, f"a slower {write.kind.name}")
        same(await subject.read(write.id), before, f"after a slower {write.kind.name}")


@FENCING.proves("contract")
async def write_or_fence_comes_first(scratch: Scratch) -> None:
    """A write that races with its fence is either in its versions, or has not happened."""
    subject = await scratch.subject(counter())
    await subject.create("old", {"n": -1})
    for write in racing_writes(subject):
        token = f"token {write.operation}"
        sending, fencing = _send(subject, write, token), _fence(subject, write.id, token)
        await race(subject, write, sending, fencing, Status.FENCED)
