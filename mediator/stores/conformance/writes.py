"""What each kind of write does, and what it answers when it may not be done."""

from __future__ import annotations

from mediator.model.operators import Operator, OperatorCall
from mediator.schema.annotations import Capability
from mediator.schema.types import FieldType
from mediator.stores.conformance.check import Theme
from mediator.stores.conformance.expect import applied, expect_status, require, same
from mediator.stores.conformance.samples import counter, text
from mediator.stores.conformance.scratch import Scratch
from mediator.stores.port import Status

__all__ = ["THEME"]

THEME = Theme("writes")


@THEME.proves("contract")
async def create_needs_absence(scratch: Scratch) -> None:
    """CREATE makes an absent record, and answers EXISTS to a present one, which stays."""
    subject = await scratch.subject(counter())
    first = applied(await subject.create("x", {"n": 1}), "the first CREATE")
    require(first.created, "the first CREATE did not say that it created")
    expect_status(await subject.create("x", {"n": 2}), Status.EXISTS, "the second CREATE")
    same(await subject.values("x"), {"n": 1}, "after the second CREATE")
    same(await subject.versions("x"), dict(first.versions), "versions after the second CREATE")


@THEME.proves("contract")
async def replace_makes_exactly_its_values(scratch: Scratch) -> None:
    """REPLACE creates an absent record, and leaves nothing of a present one."""
    subject = await scratch.subject(counter("a"), counter("b"), text("c", group="side"))
    first = applied(await subject.replace("x", {"a": 1, "b": None}), "REPLACE of nothing")
    require(first.created, "REPLACE of nothing did not say that it created")
    second = applied(await subject.replace("x", {"c": "see"}), "REPLACE of a record")
    require(not second.created, "REPLACE of a record said that it created")
    same(await subject.values("x"), {"c": "see"}, "after REPLACE")


@THEME.proves("contract")
async def absent_records_are_missing(scratch: Scratch) -> None:
    """UPDATE, DELETE and REPLACE that needs presence answer MISSING, and make nothing."""
    subject = await scratch.subject(counter())
    add = OperatorCall("n", Operator.INC, 1)
    for what, result in (
        ("UPDATE", await subject.update("x", {"n": 1})),
        ("UPDATE by an operator", await subject.update("x", operators=(add,))),
        ("DELETE", await subject.delete("x")),
        ("REPLACE", await subject.replace("x", {"n": 1}, require_present=True)),
    ):
        expect_status(result, Status.MISSING, f"{what} of an absent record")
        same(await subject.read("x"), None, f"after {what} of an absent record")


@THEME.proves("contract")
async def replace_that_needs_presence(scratch: Scratch) -> None:
    """REPLACE with `require_present` replaces a record that is there."""
    subject = await scratch.subject(counter())
    await subject.create("x", {"n": 1})
    applied(await subject.replace("x", {"n": 2}, require_present=True), "REPLACE of a record")
    same(await subject.values("x"), {"n": 2}, "after REPLACE")


@THEME.proves("contract")
async def update_does_all_at_once(scratch: Scratch) -> None:
    """One UPDATE sets, removes and operates on different fields, and leaves the others."""
    subject = await scratch.subject(counter("a"), counter("b"), counter("c"), counter("d"))
    await subject.create("x", {"a": 1, "b": 2, "c": 3, "d": 4})
    adds = scratch.store.supports(Operator.INC, FieldType.INTEGER)
    calls = (OperatorCall("c", Operator.INC, 27),) if adds else ()
    result = await subject.update("x", {"a": 10}, unset=("b",), operators=calls, returning=())
    expected = {"a": 10, "c": 30 if adds else 3, "d": 4}
    same(applied(result).values, expected, "values returned by UPDATE")
    same(await subject.values("x"), expected, "after UPDATE")


@THEME.proves(Capability.CONDITIONAL_UPDATES)
async def wrong_expectations_conflict(scratch: Scratch) -> None:
    """REPLACE, UPDATE and DELETE with a stale version change nothing; CONFLICT has the current."""
    subject = await scratch.subject(counter())
    stale = dict(applied(await subject.create("x", {"n": 1})).versions)
    current = dict(applied(await subject.update("x", {"n": 2})).versions)
    for what, result in (
        ("UPDATE", await subject.update("x", {"n": 3}, expect=stale)),
        ("REPLACE", await subject.replace("x", {"n": 3}, expect=stale)),
        ("DELETE", await subject.delete("x", expect=stale)),
    ):
        expect_status(result, Status.CONFLICT, f"{what} that expects a stale version")
        same(result.versions, current, f"current versions of {what}")
        same(await subject.values("x"), {"n": 2}, f"after {what}")
        same(await subject.versions("x"), current, f"versions after {what}")


@THEME.proves(Capability.CONDITIONAL_UPDATES)
async def right_expectations_are_met(scratch: Scratch) -> None:
    """UPDATE, REPLACE and DELETE that expect the current version are applied."""
    subject = await scratch.subject(counter())
    seen = applied(await subject.create("x", {"n": 1})).versions
    seen = applied(await subject.update("x", {"n": 2}, expect=seen), "UPDATE").versions
    seen = applied(await subject.replace("x", {"n": 3}, expect=seen), "REPLACE").versions
    same(await subject.values("x"), {"n": 3}, "after REPLACE")
    applied(await subject.delete("x", expect=seen), "DELETE")
    same(await subject.read("x"), None, "after DELETE")


@THEME.proves(Capability.CONDITIONAL_UPDATES)
async def nothing_meets_an_expectation(scratch: Scratch) -> None:
    """A write that expects a version of an absent or deleted record is not applied."""
    subject = await scratch.subject(counter())
    versions = applied(await subject.create("gone", {"n": 1})).versions
    await subject.delete("gone")
    for id_ in ("never", "gone"):
        for what, result in (
            ("UPDATE", await subject.update(id_, {"n": 2}, expect=versions)),
            ("REPLACE", await subject.replace(id_, {"n": 2}, expect=versions)),
            ("DELETE", await subject.delete(id_, expect=versions)),
        ):
            refused = result.status in (Status.CONFLICT, Status.MISSING)
            require(refused, f"{what} expecting a version of nothing: {result.status.name}")
        same(await subject.read(id_), None, "a record that is not there")


@THEME.proves(Capability.CONDITIONAL_UPDATES)
async def expectations_are_kept_by_group(scratch: Scratch) -> None:
    """A write may expect versions of some groups; writes to other groups do not disturb it."""
    subject = await scratch.subject(counter("a"), counter("b", group="side"))
    first = applied(await subject.create("x", {"a": 1, "b": 1})).versions
    second = applied(await subject.update("x", {"b": 2}), "UPDATE of one group").versions
    main, side = {"main": first["main"]}, {"side": first["side"]}
    stale = await subject.update("x", {"a": 5}, expect=side)
    expect_status(stale, Status.CONFLICT, "expecting a stale version of a group not written")
    both = await subject.update("x", {"a": 5}, expect={**main, **side})
    expect_status(both, Status.CONFLICT, "expecting one current and one stale version")
    applied(await subject.update("x", {"b": 3}, expect=main), "expecting a current version")
    fresh = {**main, "side": (await subject.versions("x"))["side"]}
    require(fresh["side"] > second["side"], "an UPDATE gave its group no later version")
    applied(await subject.update("x", {"a": 2}, expect=fresh), "expecting two current versions")
    same(await subject.values("x"), {"a": 2, "b": 3}, "after the writes that were applied")
