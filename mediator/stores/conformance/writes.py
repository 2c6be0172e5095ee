"""The effect of each kind of write, single and in bulk, and its status when it is refused."""

from __future__ import annotations

from itertools import product

from mediator.model.operators import Operator, OperatorCall
from mediator.schema.annotations import Capability
from mediator.schema.limits import INTEGER_MAX
from mediator.schema.types import FieldType, Values
from mediator.stores.conformance.check import Theme
from mediator.stores.conformance.expect import (
    applied,
    expect_status,
    expect_statuses,
    present,
    require,
    same,
)
from mediator.stores.conformance.samples import collection, counter, text
from mediator.stores.conformance.scratch import Scratch, ScratchClass
from mediator.stores.port import Status

__all__ = ["BULK", "DELETES", "WRITES"]

WRITES = Theme("writes")
DELETES = Theme("deletes")
BULK = Theme("bulk")

_MANY = 1_000
_ADD = (OperatorCall("n", Operator.INC, 1),)


async def _require_missing(subject: ScratchClass) -> None:
    """Require that all writes treat the record `x` as absent."""
    for write in (
        subject.change("x", {"n": 1}),
        subject.change("x", operators=_ADD),
        subject.deletion("x"),
        subject.replacement("x", {"n": 1}, require_present=True),
    ):
        label = f"{write.kind.name} of an absent record"
        expect_status(await subject.write(write), Status.MISSING, label)
        same(await subject.read("x"), None, f"after {label}")


@WRITES.proves("contract")
async def create_needs_absence(scratch: Scratch) -> None:
    """CREATE creates an absent record, and returns EXISTS for a present one, which stays."""
    subject = await scratch.subject(counter())
    first = applied(await subject.create("x", {"n": 1}), "the first CREATE")
    require(first.created, "the first CREATE did not say that it created")
    expect_status(await subject.create("x", {"n": 2}), Status.EXISTS, "the second CREATE")
    same(await subject.values("x"), {"n": 1}, "after the second CREATE")
    same(await subject.versions("x"), dict(first.versions), "versions after the second CREATE")


@WRITES.proves("contract")
async def replace_makes_exactly_its_values(scratch: Scratch) -> None:
    """REPLACE creates an absent record, and leaves nothing of a present one."""
    subject = await scratch.subject(counter("a"), counter("b"), text("c", group="side"))
    first = applied(await subject.replace("x", {"a": 1, "b": None}), "REPLACE of nothing")
    require(first.created, "REPLACE of nothing did not say that it created")
    steps: tuple[tuple[bool, Values], ...] = ((False, {"c": "see"}), (True, {"a": 2}))
    for present_, values in steps:
        result = await subject.replace("x", values, require_present=present_)
        require(not applied(result).created, "REPLACE of a record said that it created")
        same(await subject.values("x"), values, "after REPLACE")


@WRITES.proves("contract")
async def absent_records_are_missing(scratch: Scratch) -> None:
    """UPDATE, DELETE, and REPLACE that requires presence, return MISSING and create nothing."""
    await _require_missing(await scratch.subject(counter()))


@WRITES.proves("contract")
async def an_update_applies_all_changes(scratch: Scratch) -> None:
    """One UPDATE sets, removes and operates on different fields, and keeps the others."""
    subject = await scratch.subject(counter("a"), counter("b"), counter("c"), counter("d"))
    await subject.create("x", {"a": 1, "b": 2, "c": 3, "d": 4})
    adds = scratch.store.supports(Operator.INC, FieldType.INTEGER)
    calls = (OperatorCall("c", Operator.INC, 27),) if adds else ()
    result = await subject.update("x", {"a": 10}, unset=("b",), operators=calls, returning=())
    expected = {"a": 10, "c": 30 if adds else 3, "d": 4}
    same(applied(result).values, expected, "values returned by UPDATE")
    same(await subject.values("x"), expected, "after UPDATE")


@WRITES.proves(Capability.CONDITIONAL_UPDATES)
async def wrong_expectations_conflict(scratch: Scratch) -> None:
    """REPLACE, UPDATE and DELETE with a stale version change nothing; CONFLICT has the current."""
    subject = await scratch.subject(counter())
    stale = dict(applied(await subject.create("x", {"n": 1})).versions)
    current = dict(applied(await subject.update("x", {"n": 2})).versions)
    for write in subject.every_kind("x", {"n": 3}, expect=stale):
        label, result = write.kind.name, await subject.write(write)
        expect_status(result, Status.CONFLICT, f"{label} that expects a stale version")
        same(result.versions, current, f"current versions of {label}")
        same(await subject.values("x"), {"n": 2}, f"after {label}")
        same(await subject.versions("x"), current, f"versions after {label}")


@WRITES.proves(Capability.CONDITIONAL_UPDATES)
async def right_expectations_are_met(scratch: Scratch) -> None:
    """UPDATE, REPLACE and DELETE that expect the current version are applied."""
    subject = await scratch.subject(counter())
    versions = applied(await subject.create("x", {"n": 1})).versions
    versions = applied(await subject.update("x", {"n": 2}, expect=versions), "UPDATE").versions
    versions = applied(await subject.replace("x", {"n": 3}, expect=versions), "REPLACE").versions
    same(await subject.values("x"), {"n": 3}, "after REPLACE")
    applied(await subject.delete("x", expect=versions), "DELETE")
    same(await subject.read("x"), None, "after DELETE")


@WRITES.proves(Capability.CONDITIONAL_UPDATES)
async def absent_records_meet_no_expectation(scratch: Scratch) -> None:
    """A write that expects a version of an absent or deleted record, even 0, is not applied."""
    subject = await scratch.subject(counter())
    versions = applied(await subject.create("deleted", {"n": 1})).versions
    await subject.delete("deleted")
    for id_, expect in product(("absent", "deleted"), (versions, dict.fromkeys(versions, 0))):
        for write in (
            *subject.every_kind(id_, {"n": 2}, expect=expect),
            subject.creation(id_, {"n": 2}, expect=expect),
        ):
            result = await subject.write(write)
            refused = result.status in (Status.CONFLICT, Status.MISSING)
            label = f"{write.kind.name} expecting {dict(expect)} of the {id_} record"
            require(refused, f"{label}: {result.status.name}")
        same(await subject.read(id_), None, f"the {id_} record")


@WRITES.proves(Capability.CONDITIONAL_UPDATES)
async def expectations_are_kept_by_group(scratch: Scratch) -> None:
    """A write can expect versions of some groups; writes to other groups do not affect it."""
    subject = await scratch.subject(counter("a"), counter("b", group="side"))
    first = applied(await subject.create("x", {"a": 1, "b": 1})).versions
    second = applied(await subject.update("x", {"b": 2}), "UPDATE of one group").versions
    main, side = {"main": first["main"]}, {"side": first["side"]}
    stale = await subject.update("x", {"a": 5}, expect=side)
    expect_status(stale, Status.CONFLICT, "expecting a stale version of a group not written")
    mixed = await subject.update("x", {"a": 5}, expect={**main, **side})
    expect_status(mixed, Status.CONFLICT, "expecting one current and one stale version")
    applied(await subject.update("x", {"b": 3}, expect=main), "expecting a current version")
    fresh = {**main, "side": (await subject.versions("x"))["side"]}
    require(fresh["side"] > second["side"], "an UPDATE gave its group no later version")
    applied(await subject.update("x", {"a": 2}, expect=fresh), "expecting two current versions")
    same(await subject.values("x"), {"a": 2, "b": 3}, "after the writes that were applied")


@DELETES.proves("contract")
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


@DELETES.proves("contract")
async def deleted_records_cannot_be_changed(scratch: Scratch) -> None:
    """UPDATE, DELETE, and REPLACE that requires presence, return MISSING after DELETE."""
    subject = await scratch.subject(counter())
    await subject.create("x", {"n": 1})
    await subject.delete("x")
    await _require_missing(subject)


@DELETES.proves("contract")
async def nothing_is_resurrected(scratch: Scratch) -> None:
    """A record recreated under the id of a deleted one has none of its values."""
    subject = await scratch.subject(
        counter(index=True), text("s"), collection(FieldType.LIST, FieldType.STRING, "l")
    )
    for recreate in (subject.create, subject.replace):
        await subject.replace("x", {"n": 1, "s": "old", "l": ["old"]})
        applied(await subject.delete("x"), "DELETE")
        result = applied(await recreate("x", {"n": 2}), "making the record again")
        require(result.created, "making a deleted record again must say that it created")
        same(await subject.values("x"), {"n": 2}, "a record created again")
        same(await scratch.store.count(subject.fragment), 1, "count")


@BULK.proves("contract")
async def empty_calls_have_no_results(scratch: Scratch) -> None:
    """No calls have no results."""
    same(await scratch.store.write([]), [], "no writes")
    same(await scratch.store.read([]), [], "no reads")


@BULK.proves("contract")
async def a_thousand_records(scratch: Scratch) -> None:
    """A thousand creations and reads in one call are all executed, with results in order."""
    subject = await scratch.subject(counter(), text())
    ids = [f"{(i * 7919) % _MANY:04}" for i in range(_MANY)]
    writes = [subject.creation(id_, {"n": i}) for i, id_ in enumerate(ids)]
    await subject.apply_all(writes, "of a thousand")
    records = await subject.read_all([*ids, "absent"])
    require(records.pop() is None, "an absent record among a thousand was found")
    for i, record in enumerate(records):
        same(present(record, ids[i]).values, {"n": i}, f"record {ids[i]} of a thousand")
    same(await scratch.store.count(subject.fragment), _MANY, "count")


@BULK.proves("contract")
async def one_record_a_thousand_times(scratch: Scratch) -> None:
    """A thousand writes to one record in one call take effect in order."""
    subject = await scratch.subject(counter())
    await subject.create("x")
    writes = [subject.change("x", {"n": i}, returning=("n",)) for i in range(_MANY)]
    results = await subject.write_all(writes)
    same([r.values.get("n") for r in results], list(range(_MANY)), "values returned in order")
    versions = [result.versions["main"] for result in results]
    require(versions == sorted(set(versions)), "versions of a thousand writes do not rise")
    same(await subject.values("x"), {"n": _MANY - 1}, "after a thousand writes")


@BULK.proves("contract")
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


@BULK.proves("contract")
async def a_refusal_harms_no_other(scratch: Scratch) -> None:
    """A write refused for an overflow leaves the other writes of the call alone."""
    if not scratch.store.supports(Operator.INC, FieldType.INTEGER):
        return
    subject = await scratch.subject(counter())
    await subject.create("full", {"n": INTEGER_MAX})
    script = [
        subject.creation("a", {"n": 1}),
        subject.change("full", operators=_ADD),
        subject.change("a", operators=_ADD),
        subject.creation("b", {"n": 1}),
    ]
    applied_ = Status.APPLIED
    results = await subject.write_all(script)
    expect_statuses(
        results, [applied_, Status.REFUSED, applied_, applied_], "an overflow among others"
    )
    same(await subject.values("a"), {"n": 2}, "a record written around the overflow")
    same(await subject.values("full"), {"n": INTEGER_MAX}, "the record that would overflow")


@BULK.proves("contract")
async def classes_mix_in_one_call(scratch: Scratch) -> None:
    """One call can write and read records of several classes, under the same ids."""
    first, second = await scratch.subject(counter()), await scratch.subject(text())
    writes = [first.creation("x", {"n": 1}), second.creation("x", {"s": "one"})]
    await first.apply_all(writes, "in one of two classes")
    same(await first.values("x"), {"n": 1}, "the record of the first class")
    same(await second.values("x"), {"s": "one"}, "the record of the second class")
    same(await first.read("y"), None, "an id of neither class")
