"""Write intents: writes compare them in the step in which they take effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from mediator.base.concurrency import concurrently
from mediator.model.operators import Operator, OperatorCall
from mediator.schema.types import FieldType
from mediator.stores.conformance.change_reader import ChangeReader, summary
from mediator.stores.conformance.check import Theme
from mediator.stores.conformance.expect import (
    applied,
    expect_status,
    expect_statuses,
    require,
    same,
)
from mediator.stores.conformance.intent_cases import (
    INTENT,
    OTHER,
    expect_no_redo,
    lockable,
    redo_records,
)
from mediator.stores.conformance.retries import race, racing_writes
from mediator.stores.conformance.samples import EDGES, HOSTILE_TEXTS, collection, counter
from mediator.stores.conformance.scratch import Scratch, ScratchClass
from mediator.stores.port import (
    Lockable,
    Queryable,
    Record,
    RecordState,
    SearchRequest,
    Status,
    Write,
    WriteKind,
)

__all__ = ["THEME"]

THEME = Theme("intents")

ROUNDS: Final = 12


async def _lock(
    store: Lockable, subject: ScratchClass, id_: str, intent: str = INTENT, redo: str = ""
) -> RecordState:
    return (await store.lock([(subject.fragment, id_)], intent, redo))[0]


async def _record_state(store: Lockable, subject: ScratchClass, id_: str) -> RecordState:
    return (await store.record_states([(subject.fragment, id_)]))[0]


def _of_every_kind(subject: ScratchClass, id_: str, **options: str) -> tuple[Write, ...]:
    return (
        *subject.every_kind(id_, {"n": 9}, **options),
        *subject.every_kind(id_, {"n": 9}, remember="f", **options),
        subject.creation(id_, {"n": 9}, **options),
    )


@THEME.proves("contract")
async def a_record_with_an_intent_takes_no_other_writes(scratch: Scratch) -> None:
    """Writes without the intent, or with another one, get LOCKED with the present intent."""
    store, subject = lockable(scratch), await scratch.subject(counter())
    versions = applied(await subject.create("x", {"n": 1})).versions
    state = await _lock(store, subject, "x")
    same((state.intent, state.versions), (INTENT, versions), "the state with the intent")
    record = await subject.read("x")
    for options in ({}, {"intent": OTHER}):
        for write in _of_every_kind(subject, "x", **options):
            result = await subject.write(write)
            expect_status(result, Status.LOCKED, f"{write.kind.name} of a record with an intent")
            same(result.intent, INTENT, "the intent of the result")
            same(await subject.read("x"), record, f"the record after {write.kind.name}")


@THEME.proves("contract")
async def absent_records_can_have_intents(scratch: Scratch) -> None:
    """Only the owner of an intent creates an absent record; an intent alone creates none."""
    store, subject = lockable(scratch), await scratch.subject(counter(index=True))
    for id_ in filter(None, HOSTILE_TEXTS):
        state = await _lock(store, subject, id_)
        same(state, RecordState(None, {}, INTENT), "an absent record")
        for write in _of_every_kind(subject, id_):
            expect_status(await subject.write(write), Status.LOCKED, f"{write.kind.name}")
        same(await subject.read(id_), None, "the record")
    same(await scratch.store.count(subject.fragment), 0, "count")
    same(await scratch.store.scan(subject.fragment, None, 10), [], "scan")
    result = applied(await subject.create(HOSTILE_TEXTS[1], {"n": 1}, intent=INTENT), "its owner")
    require(result.created, "a creation under an intent must say that it created")
    same(await subject.values(HOSTILE_TEXTS[1]), {"n": 1}, "the record")


@THEME.proves("contract")
async def an_intent_makes_no_version(scratch: Scratch) -> None:
    """Intents leave the record unchanged, and only their owner removes them."""
    store, subject = lockable(scratch), await scratch.subject(counter())
    await subject.create("x", {"n": 1})
    state = await subject.read("x")
    same((await _lock(store, subject, "x")).intent, INTENT, "set")
    same((await _lock(store, subject, "x")).intent, INTENT, "set again")
    same((await _lock(store, subject, "x", OTHER)).intent, INTENT, "set by another owner")
    await store.unlock([(subject.fragment, "x")], OTHER)
    same((await _record_state(store, subject, "x")).intent, INTENT, "removed by another owner")
    await store.unlock([(subject.fragment, "x")], INTENT)
    await store.unlock([(subject.fragment, "y")], INTENT)
    same((await _record_state(store, subject, "x")).intent, "", "removed")
    same(await subject.read("x"), state, "the record")
    applied(await subject.update("x", {"n": 2}), "a plain write")


@THEME.proves("contract")
async def an_intent_is_on_one_record(scratch: Scratch) -> None:
    """Of many writes in one call, only those to the record with an intent are refused."""
    store, subject = lockable(scratch), await scratch.subject(counter())
    ids = [f"{i}" for i in range(20)]
    await subject.write_all([subject.creation(id_, {"n": 0}) for id_ in ids])
    await _lock(store, subject, "7")
    results = await subject.write_all([subject.change(id_, {"n": 1}) for id_ in ids])
    expected = [Status.LOCKED if id_ == "7" else Status.APPLIED for id_ in ids]
    expect_statuses(results, expected, "writes of one call")


@THEME.proves("contract")
async def intents_do_not_affect_reads(scratch: Scratch) -> None:
    """Reads, pages and counts ignore intents: present records are shown, absent ones are not."""
    store = lockable(scratch)
    fields = (counter(index=True), collection(FieldType.LIST, FieldType.INTEGER, "l"))
    subject = await scratch.subject(*fields)
    await subject.create("x", {"n": 1, "l": [1]})
    await subject.create("gone", {"n": 2})
    await subject.delete("gone")
    before = await _read(subject)
    keys = [(subject.fragment, id_) for id_ in ("x", "gone", "never")]
    for state_text, change in (
        ("with", partial(store.lock, redo="redo")),
        ("that had", store.unlock),
    ):
        await change(keys, INTENT)
        same(await _read(subject), before, f"reads of records {state_text} intents")
        same(
            await subject.store.count(subject.fragment), 1, f"count of records {state_text} intents"
        )


@THEME.proves("contract")
async def intents_are_not_logged(scratch: Scratch) -> None:
    """The change log has the writes under intents, and no intents."""
    store, reader = lockable(scratch), await ChangeReader.to(scratch, counter())
    subject = reader.subject
    for id_ in ("x", "y"):
        await _lock(store, subject, id_)
    first = applied(await subject.create("x", {"n": 1}, intent=INTENT))
    await _lock(store, subject, "x")
    second = applied(await subject.update("x", {"n": 2}, intent=INTENT))
    await _lock(store, subject, "x")
    third = applied(await subject.delete("x", intent=INTENT))
    await _lock(store, subject, "x")
    await store.unlock([(subject.fragment, "x")], INTENT)
    versions = [result.versions["main"] for result in (first, second, third)]
    expected = [
        ("main", "create", versions[0], None, {"n": 1}),
        ("main", "update", versions[1], {"n": 1}, {"n": 2}),
        ("main", "delete", versions[2], {"n": 2}, None),
    ]
    same([summary(change) for change in await reader.changes_of("x")], expected, "changes")
    await store.unlock([(subject.fragment, "y")], INTENT)
    same(await reader.changes_of("y"), [], "changes of a record that only had an intent")


@THEME.proves("contract")
async def one_of_many_intents_wins(scratch: Scratch) -> None:
    """Of concurrently set intents, one stays, and all calls return it, also on absent records."""
    store, subject = lockable(scratch), await scratch.subject(counter())
    await subject.create("old", {"n": 0})
    for round_ in range(ROUNDS):
        for id_ in ("old", f"new{round_}"):
            intents = [f"{round_}.{i}" for i in range(6)]
            states = await concurrently([_lock(store, subject, id_, intent) for intent in intents])
            winners = {state.intent for state in states}
            require(len(winners) == 1 and winners <= set(intents), f"one intent, not {winners}")
            await store.unlock([(subject.fragment, id_)], winners.pop())


@THEME.proves("contract")
async def write_or_intent_comes_first(scratch: Scratch) -> None:
    """A write that races with an intent is either in its versions, or refused."""
    store, subject = lockable(scratch), await scratch.subject(counter())
    await subject.create("old", {"n": -1})

    async def lock(id_: str) -> Mapping[str, int]:
        return (await _lock(store, subject, id_)).versions

    for write in racing_writes(subject):
        await race(subject, write, subject.write(write), lock(write.id), Status.LOCKED)
        await store.unlock([(subject.fragment, write.id)], INTENT)


@THEME.proves("contract")
async def many_records_get_intents_in_one_call(scratch: Scratch) -> None:
    """Of many records of several classes, free ones get the intent; all states are returned."""
    store = lockable(scratch)
    first, second = await scratch.subject(counter()), await scratch.subject(counter())
    await first.create("there", {"n": 1})
    applied(await first.create("gone", {"n": 1}))
    deleted = applied(await first.delete("gone")).versions
    await _lock(store, first, "taken", OTHER)
    keys = [(first.fragment, id_) for id_ in ("there", "gone", "taken", *HOSTILE_TEXTS[1:])]
    keys += [(second.fragment, "there")]
    states = await store.lock(keys, INTENT)
    intents = [OTHER if id_ == "taken" else INTENT for _, id_ in keys]
    same([state.intent for state in states], intents, "the intents returned")
    absent = [id_ != "there" or f is second.fragment for f, id_ in keys]
    same([state.creation_version is None for state in states], absent, "which are absent")
    same(states[1].versions, deleted, "versions of a tombstone")
    same(await store.record_states(keys), states, "the states")
    await store.unlock(keys, INTENT)
    remaining = ["", "", OTHER, *[""] * (len(keys) - 3)]
    same([s.intent for s in await store.record_states(keys)], remaining, "the intents left")
    same(await store.lock([], INTENT), [], "no records")
    await store.unlock([], INTENT)


@THEME.proves("contract")
async def fenced_records_take_no_intent(scratch: Scratch) -> None:
    """Records fenced against an intent, present or absent, never take it; they take others."""
    store, subject = lockable(scratch), await scratch.subject(counter())
    await subject.create("there", {"n": 1})
    await subject.create("locked", {"n": 1})
    await _lock(store, subject, "locked")
    names = ("there", "absent", "locked", "free", "new")
    for id_ in names[:3]:
        await scratch.store.fence(subject.fragment, id_, INTENT)
    expected_intents = {"there": "", "absent": "", "locked": INTENT, "free": INTENT, "new": INTENT}
    await subject.create("free", {"n": 1})
    states = await store.lock([(subject.fragment, id_) for id_ in names], INTENT)
    same(
        [state.intent for state in states],
        list(expected_intents.values()),
        "intents set in one call",
    )
    for id_, intent in expected_intents.items():
        same((await _lock(store, subject, id_)).intent, intent, f"the intent set on {id_}")
    for id_ in names[:2]:
        same((await _lock(store, subject, id_, OTHER)).intent, OTHER, f"another intent on {id_}")
    same(await subject.read("absent"), None, "an absent record")
    applied(await subject.update("locked", {"n": 2}, intent=INTENT), "under the intent it had")


@THEME.proves("contract")
async def a_redo_record_is_that_of_its_intent(scratch: Scratch) -> None:
    """A redo record stays until its intent is removed; no other call replaces or stores one."""
    store, subject = lockable(scratch), await scratch.subject(counter())
    for id_ in ("there", "fenced"):
        await subject.create(id_, {"n": 1})
    await scratch.store.fence(subject.fragment, "fenced", INTENT)
    for ids in (("there",), ("absent",), ("there", "gone", "fenced")):
        keys = [(subject.fragment, id_) for id_ in ids]
        expected_redo = ["" if id_ == "fenced" else "first" for id_ in ids]
        for joint in (False, True):
            await store.lock(keys, INTENT, "first")
            same(await redo_records(store, subject, *ids), expected_redo, "with the intent")
            states = await store.lock(keys, INTENT, "second")
            same({state.redo for state in states}, {""}, "what a lock returns")
            await store.lock(keys, INTENT)
            await store.lock(keys[:2], OTHER, "third")
            await store.unlock(keys, OTHER)
            same(
                await redo_records(store, subject, *ids),
                expected_redo,
                "after calls that set no intent",
            )
            await store.unlock(keys, INTENT, joint=joint)
            await expect_no_redo(store, subject, *ids)
            await store.lock(keys, OTHER, "of another")
            same(
                await redo_records(store, subject, *ids),
                ["of another"] * len(ids),
                "another intent",
            )
            await store.unlock(keys, OTHER)


@THEME.proves("contract")
async def redo_records_are_any_text(scratch: Scratch) -> None:
    """Redo records are returned unchanged, including long ones and ones that look like code."""
    store, subject = lockable(scratch), await scratch.subject(counter())
    texts = [str(text) for text in EDGES[FieldType.STRING] if text]
    ids = [f"{i}" for i in range(len(texts))]
    for id_, redo in zip(ids, texts, strict=True):
        await _lock(store, subject, id_, redo=redo)
    same(await redo_records(store, subject, *ids), texts, "redo records")


@THEME.proves("contract")
async def readers_of_joint_classes_see_intents(scratch: Scratch) -> None:
    """Records of a class with other fragments have their intents and last joint writes."""
    store = lockable(scratch)
    fields = (counter(index=True), collection(FieldType.LIST, FieldType.INTEGER, "l"))
    plain = await scratch.subject(*fields)
    subject = await scratch.prepare(replace(plain.fragment, joint=True), plain.fragment)
    writes = (
        subject.creation("x", {"n": 1, "l": [1]}),
        subject.change("x", {"n": 2}),
        subject.replacement("x", {"n": 3}),
        subject.change("x", {"n": 4}, remember="f"),
        subject.change("x", remember="f", returning=()),  # of no group
        subject.change("x"),
    )
    for number, write in enumerate(writes):
        intent = f"joint-{number}"
        await _lock(store, subject, "x", intent)
        if number:
            same(
                await _joint_states(subject), {(intent, f"joint-{number - 1}")}, "what readers see"
            )
        applied(await subject.write(replace(write, intent=intent)))
        same(await _joint_states(subject), {("", intent)}, f"after {write.kind.name}")
        state = await _record_state(store, subject, "x")
        same((state.intent, state.joint), ("", intent), f"the state after {write.kind.name}")
    applied(await subject.update("x", {"n": 5}), "a plain update")
    same(await _joint_states(subject), {("", "joint-5")}, "after a plain update")
    same(await _joint_states(plain), {("", "")}, "readers of a class with one fragment")
    for joint in (False, True):
        await _lock(store, subject, "x")
        await _lock(store, subject, "absent")
        keys = [(subject.fragment, id_) for id_ in ("x", "absent")]
        await store.unlock(keys, INTENT, joint=joint)
        last = INTENT if joint else "joint-5"
        same(await _joint_states(subject), {("", last)}, "after the intent has gone")
    same(await subject.read("absent"), None, "an absent record")
    same(await subject.values("x"), {"n": 5}, "the record")


async def _joint_states(subject: ScratchClass) -> set[tuple[str, str]]:
    """Return the intents and joint writes of records, read in every way."""
    records = [record for batch in await _read(subject) for record in batch]
    return {(record.intent, record.joint) for record in records if record is not None}


async def _read(subject: ScratchClass) -> list[Sequence[Record | None]]:
    """Read records in every way."""
    store, fragment = subject.store, subject.fragment
    results: list[Sequence[Record | None]] = []
    for fields in (None, ("n",)):
        results.append(await subject.read_all(["x"], fields))
        results.append(await subject.read_all(["x", "gone", "never"], fields))
        results.append(await store.scan(fragment, None, 10, fields))
    pages = [await subject.in_order("n", descending=down) for down in (False, True)]
    results += [records for records in pages if records is not None]
    if isinstance(store, Queryable):
        results.append((await store.find(SearchRequest(fragment, None, (), 10))).records)
    return results


_INCREMENT: Final = (OperatorCall("n", Operator.INC, 1),)
_WRITES: Final[Sequence[Callable[[ScratchClass, str], Write]]] = (
    lambda subject, id_: subject.creation(id_, {"n": 1, "l": [1]}, intent=INTENT),
    lambda subject, id_: subject.change(id_, {"n": 2}, intent=INTENT),
    lambda subject, id_: subject.change(id_, operators=_INCREMENT, intent=INTENT),
    lambda subject, id_: subject.change(id_, {"n": 4}, unset=("l",), intent=INTENT, returning=()),
    lambda subject, id_: subject.replacement(id_, {"n": 5}, intent=INTENT, creation_version=77),
    lambda subject, id_: subject.replacement(id_, {"n": 6}, intent=INTENT),
    lambda subject, id_: subject.deletion(id_, intent=INTENT),
    lambda subject, id_: subject.replacement(id_, {"n": 8}, intent=INTENT, creation_version=78),
    lambda subject, id_: subject.deletion(id_, intent=INTENT),
    lambda subject, id_: subject.replacement(id_, {"n": 10}, intent=INTENT, remember="f"),
    lambda subject, id_: subject.change(id_, {"n": 11}, intent=INTENT, remember="f"),
)
"""Writes of every kind, in sequence: each sets its number, except deletions."""


@THEME.proves_each((1, 12), "writes_to_{}_remove_their_intents", "contract")
async def writes_remove_their_intents(count: int, scratch: Scratch) -> None:
    """Writes of a kind to {} records, in one call, are applied once, and remove the intents."""
    store, ids = lockable(scratch), [f"{i}" for i in range(count)]
    subject = await scratch.subject(counter(), collection(FieldType.LIST, FieldType.INTEGER, "l"))
    keys = [(subject.fragment, id_) for id_ in ids]
    for round_, build in enumerate(_WRITES, 1):
        writes = [build(subject, id_) for id_ in ids]
        name = f"{writes[0].kind.name} in round {round_}"
        before = await store.lock(keys, INTENT, name)
        results = await subject.write_all(writes)
        expect_statuses(results, [Status.APPLIED] * len(ids), name)
        after = await store.record_states(keys)
        same([dict(r.versions) for r in results], [s.versions for s in after], f"versions, {name}")
        same({s.intent for s in after}, {""}, f"intents after {name}")
        creates = writes[0].kind in (WriteKind.CREATE, WriteKind.REPLACE)
        created = [creates and state.creation_version is None for state in before]
        same([result.created for result in results], created, f"what {name} created")
        if writes[0].kind is not WriteKind.DELETE:
            creations = [s.creation_version for s in after]
            same([r.creation_version for r in results], creations, f"creation versions, {name}")
            records = await subject.read_all(ids)
            same([r and r.values["n"] for r in records], [round_] * len(ids), f"values, {name}")
        repeated_status = Status.LOCKED if writes[0].remember is None else Status.REPLAYED
        repeated = await subject.write_all(writes)
        expect_statuses(repeated, [repeated_status] * len(ids), f"{name} again")
        same({result.intent for result in repeated}, {""}, "intents of records without one")
        await expect_no_redo(store, subject, *ids)
    await subject.apply_all([subject.change(id_, {"n": 12}) for id_ in ids], "without an intent")
