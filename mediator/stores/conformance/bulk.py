"""Many calls at once: each by itself, in the order of its record."""

from __future__ import annotations

from mediator.model.operators import Operator, OperatorCall
from mediator.schema.limits import INTEGER_MAX
from mediator.schema.types import FieldType
from mediator.stores.conformance.check import Theme
from mediator.stores.conformance.expect import applied, expect_statuses, present, require, same
from mediator.stores.conformance.samples import counter, text
from mediator.stores.conformance.scratch import Scratch
from mediator.stores.port import Status

__all__ = ["THEME"]

THEME = Theme("bulk")

_MANY = 1_000


@THEME.proves("contract")
async def nothing_is_a_bulk_too(scratch: Scratch) -> None:
    """No calls have no results."""
    same(await scratch.store.write([]), [], "no writes")
    same(await scratch.store.read([]), [], "no reads")


@THEME.proves("contract")
async def a_thousand_records(scratch: Scratch) -> None:
    """A thousand creations and reads in one call are all done, and answered in order."""
    subject = await scratch.subject(counter(), text())
    ids = [f"{(i * 7919) % _MANY:04}" for i in range(_MANY)]
    writes = [subject.creation(id_, {"n": i}) for i, id_ in enumerate(ids)]
    for result in await subject.write_all(writes):
        applied(result, "one of a thousand creations")
    records = await subject.read_all([*ids, "absent"])
    require(records.pop() is None, "an absent record among a thousand was found")
    for i, record in enumerate(records):
        same(present(record, ids[i]).values, {"n": i}, f"record {ids[i]} of a thousand")
    same(await scratch.store.count(subject.fragment), _MANY, "count")


@THEME.proves("contract")
async def one_record_a_thousand_times(scratch: Scratch) -> None:
    """A thousand writes to one record in one call take effect in their order."""
    subject = await scratch.subject(counter())
    await subject.create("x")
    writes = [subject.change("x", {"n": i}, returning=("n",)) for i in range(_MANY)]
    results = await subject.write_all(writes)
    same([r.values.get("n") for r in results], list(range(_MANY)), "values returned in order")
    versions = [result.versions["main"] for result in results]
    require(versions == sorted(set(versions)), "versions of a thousand writes do not rise")
    same(await subject.values("x"), {"n": _MANY - 1}, "after a thousand writes")


@THEME.proves("contract")
async def calls_on_a_record_keep_their_order(scratch: Scratch) -> None:
    """Different kinds of writes to a few records, mixed in one call, are decided one by one."""
    subject = await scratch.subject(counter())
    script = (
        (subject.change("a", {"n": 1}), Status.MISSING),
        (subject.creation("a", {"n": 2}), Status.APPLIED),
        (subject.creation("b", {"n": 1}), Status.APPLIED),
        (subject.creation("a", {"n": 3}), Status.EXISTS),
        (subject.change("a", {"n": 4}, expect={"main": 1}), Status.CONFLICT),
        (subject.change("a", {"n": 5}), Status.APPLIED),
        (subject.deletion("b"), Status.APPLIED),
        (subject.deletion("b"), Status.MISSING),
        (subject.replacement("b", {"n": 6}, require_present=True), Status.MISSING),
        (subject.replacement("b", {"n": 7}), Status.APPLIED),
        (subject.deletion("a"), Status.APPLIED),
        (subject.creation("a", {"n": 8}), Status.APPLIED),
    )
    results = await subject.write_all([write for write, _ in script])
    expect_statuses(results, [status for _, status in script], "mixed writes in one call")
    same(await subject.values("a"), {"n": 8}, "the first record")
    same(await subject.values("b"), {"n": 7}, "the second record")


@THEME.proves("contract")
async def a_refusal_harms_no_other(scratch: Scratch) -> None:
    """A write refused for an overflow leaves the other writes of the call alone."""
    if not scratch.store.supports(Operator.INC, FieldType.INTEGER):
        return
    subject = await scratch.subject(counter())
    await subject.create("full", {"n": INTEGER_MAX})
    add = (OperatorCall("n", Operator.INC, 1),)
    script = [
        subject.creation("a", {"n": 1}),
        subject.change("full", operators=add),
        subject.change("a", operators=add),
        subject.creation("b", {"n": 1}),
    ]
    done = Status.APPLIED
    results = await subject.write_all(script)
    expect_statuses(results, [done, Status.REFUSED, done, done], "an overflow among others")
    same(await subject.values("a"), {"n": 2}, "a record written around the overflow")
    same(await subject.values("full"), {"n": INTEGER_MAX}, "the record that would overflow")


@THEME.proves("contract")
async def classes_mix_in_one_call(scratch: Scratch) -> None:
    """One call may write and read records of several classes, under the same ids."""
    first, second = await scratch.subject(counter()), await scratch.subject(text())
    writes = [first.creation("x", {"n": 1}), second.creation("x", {"s": "one"})]
    for result in await first.write_all(writes):
        applied(result, "CREATE in one of two classes")
    same(await first.values("x"), {"n": 1}, "the record of the first class")
    same(await second.values("x"), {"s": "one"}, "the record of the second class")
    same(await first.read("y"), None, "an id of neither class")
