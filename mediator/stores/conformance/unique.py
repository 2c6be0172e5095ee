"""Unique constraints: of one class no two records have the same claim, whatever writes race."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from mediator.schema.tree import Field
from mediator.schema.types import FieldType, Value
from mediator.schema.unique import claims_of
from mediator.stores.conformance.change_reader import ChangeReader, expect_changes
from mediator.stores.conformance.check import Theme
from mediator.stores.conformance.expect import (
    NotOffered,
    applied,
    expect_status,
    expect_statuses,
    present,
    require,
    same,
)
from mediator.stores.conformance.samples import HOSTILE_TEXTS, counter, plain
from mediator.stores.conformance.scratch import Scratch, ScratchClass
from mediator.stores.port import (
    Claiming,
    Lockable,
    PendingChanges,
    Status,
    Taken,
    Write,
    WriteKind,
    WriteResult,
    is_claiming,
)

__all__ = ["THEME"]

THEME = Theme("unique")

INTENT: Final = "intent-1"
OTHER: Final = "intent-2"
WRITERS: Final = 24
ROUNDS: Final = 8

_EMAIL: Final = Field("email", FieldType.STRING)
_TENANT: Final = Field("tenant", FieldType.STRING)
_SINGLE: Final = (("email",),)
_TOGETHER: Final = (("tenant", "email"),)


def _claiming(scratch: Scratch) -> Claiming:
    if not is_claiming(scratch.store):
        raise NotOffered("the store keeps no values unique")
    return scratch.store


async def _subject(scratch: Scratch, unique: tuple[tuple[str, ...], ...] = _SINGLE) -> ScratchClass:
    _claiming(scratch)
    return await scratch.subject(_EMAIL, _TENANT, counter(), unique=unique)


def _taken(result: WriteResult, holder: str, intent: str = "", name: str = "email") -> None:
    expect_status(result, Status.TAKEN, "a write of what another record has")
    same(result.taken, Taken(name, holder, intent), "what is taken")


async def _holders(subject: ScratchClass, ids: Sequence[str], email: str) -> list[str]:
    records = await subject.read_all(ids)
    return [r.id for r in records if r is not None and r.values.get("email") == email]


@THEME.proves("contract")
async def one_writer_gets_a_value(scratch: Scratch) -> None:
    """Of writers that race for a value, in whatever way, exactly one gets it."""
    subject = await _subject(scratch)
    for number in range(ROUNDS):
        email, ids = f"e{number}", [f"{number}.{i}" for i in range(WRITERS)]
        present = [subject.creation(id_, {"email": id_}) for id_ in ids[::3]]
        await subject.apply_all(present)
        builders = (subject.change, subject.creation, subject.replacement)
        writes = [builders[i % 3](id_, {"email": email}) for i, id_ in enumerate(ids)]
        results = await asyncio.gather(*map(subject.write, writes))
        winners = [id_ for id_, r in zip(ids, results, strict=True) if r.status is Status.APPLIED]
        same(len(winners), 1, "writers that got the value")
        same(await _holders(subject, ids, email), winners, "the records with the value")
        for id_, result in zip(ids, results, strict=True):
            if id_ != winners[0]:
                _taken(result, winners[0])


@THEME.proves("contract")
async def what_is_taken_is_refused(scratch: Scratch) -> None:
    """Creations, replacements and updates are refused, and leave everything as it was."""
    subject = await _subject(scratch)
    await subject.create("x", {"email": "a"})
    await subject.create("y", {"email": "b", "n": 1})
    before = await subject.read("y")
    for what in ({}, {"remember": "f"}, {"returning": ()}):
        _taken(await subject.create("z", {"email": "a"}, **what), "x")
        _taken(await subject.replace("z", {"email": "a"}, **what), "x")
        same(await subject.read("z"), None, "the record that was not made")
        _taken(await subject.replace("y", {"email": "a"}, **what), "x")
        _taken(await subject.update("y", {"email": "a", "n": 2}, **what), "x")
        same(await subject.read("y"), before, "the record that was not changed")
    expect_status(await subject.create("x", {"email": "b"}), Status.EXISTS, "one that exists")
    applied(await subject.update("y", {"n": 3}), "an update of another field")
    applied(await subject.create("z", {"email": "c"}), "another value")


@THEME.proves("contract")
async def each_write_of_a_call_is_refused_by_itself(scratch: Scratch) -> None:
    """Of many writes in one call, only those of values that are taken are refused."""
    subject = await _subject(scratch)
    await subject.create("x", {"email": "7"})
    ids = [f"{i}" for i in range(20)]
    results = await subject.write_all([subject.creation(i, {"email": i}) for i in ids])
    expected = [Status.TAKEN if id_ == "7" else Status.APPLIED for id_ in ids]
    expect_statuses(results, expected, "creations")
    again = [subject.creation(f"again {i}", {"email": i}) for i in ids]
    expect_statuses(await subject.write_all(again), [Status.TAKEN] * 20, "the same values")
    twins = [subject.creation(f"twin {i}", {"email": "twin"}) for i in range(200)]
    statuses = [result.status for result in await subject.write_all(twins)]
    same(statuses.count(Status.APPLIED), 1, "one value in one call")


@THEME.proves("contract")
async def a_value_becomes_free(scratch: Scratch) -> None:
    """Deletion, replacement, and updates that set, empty or remove a value make it free."""
    subject = await _subject(scratch)
    frees: Sequence[tuple[str, Write]] = (
        ("deletion", subject.deletion("x")),
        ("replacement", subject.replacement("x", {"email": "other"})),
        ("replacement without it", subject.replacement("x", {"n": 1})),
        ("update", subject.change("x", {"email": "another"})),
        ("null", subject.change("x", {"email": None})),
        ("removal", subject.writing(WriteKind.UPDATE, "x", unset=("email",))),
    )
    for what, write in frees:
        applied(await subject.replace("x", {"email": "a"}), "a first record")
        _taken(await subject.create("y", {"email": "a"}), "x")
        applied(await subject.write(write), what)
        applied(await subject.create("y", {"email": "a"}), f"after {what}")
        _taken(await subject.replace("x", {"email": "a"}), "y")
        applied(await subject.delete("y"), "the second record")


@THEME.proves("contract")
async def a_record_keeps_its_value(scratch: Scratch) -> None:
    """Writing again what a record has is no conflict with itself."""
    subject = await _subject(scratch)
    result = applied(await subject.create("x", {"email": "a"}, operation="o", remember="f"))
    for write in (
        subject.replacement("x", {"email": "a"}),
        subject.change("x", {"email": "a", "n": 1}),
        subject.change("x", {"n": 2}),
        subject.change("x", {"email": "b"}),
        subject.change("x", {"email": "a"}),
    ):
        applied(await subject.write(write), "a write of the record")
    _taken(await subject.create("y", {"email": "a"}), "x")
    again = await subject.create("x", {"email": "a"}, operation="o", remember="f")
    same(expect_status(again, Status.REPLAYED, "a retry").versions, result.versions, "versions")


@THEME.proves("contract")
async def null_and_missing_are_not_unique(scratch: Scratch) -> None:
    """Records without a value, or with null, are no duplicates; nor if one of several is so."""
    subject = await _subject(scratch, (("email",), ("tenant", "email")))
    await subject.apply_all([subject.creation(f"m{i}", {"n": i}) for i in range(8)])
    await subject.apply_all([subject.creation(f"n{i}", {"email": None}) for i in range(8)])
    partial = await scratch.subject(_EMAIL, _TENANT, unique=_TOGETHER)
    await partial.apply_all([partial.creation(f"t{i}", {"tenant": "t"}) for i in range(8)])
    await partial.apply_all([partial.replacement(f"e{i}", {"email": "e"}) for i in range(8)])


@THEME.proves("contract")
async def values_are_compared_together(scratch: Scratch) -> None:
    """A constraint of several fields compares them as a whole, in their order."""
    subject = await _subject(scratch, _TOGETHER)
    pairs = [("a", "b"), ("b", "a"), ("ab", ""), ("", "ab"), ("a,", "b"), ("a", ",b")]
    writes = [subject.creation(f"{t}|{e}", {"tenant": t, "email": e}) for t, e in pairs]
    await subject.apply_all(writes)
    for tenant, email in pairs:
        result = await subject.create("z", {"tenant": tenant, "email": email})
        _taken(result, f"{tenant}|{email}", name="tenant,email")
    change = subject.change("a|b", {"tenant": "c", "email": "b"})
    applied(await subject.write(change), "a change of one of them")
    applied(await subject.create("z", {"tenant": "a", "email": "b"}), "what has become free")


_ALIKE: Final[Sequence[tuple[FieldType, Value, Value, Value]]] = (
    (FieldType.INTEGER, 2**53, 2**53, 2**53 + 1),
    (FieldType.DECIMAL, Decimal("1.5"), Decimal("1.50"), Decimal("1.51")),
    (FieldType.BOOLEAN, True, True, False),
    (FieldType.BINARY, b"\x00", b"\x00", b"\x00\x00"),
    (
        FieldType.TIMESTAMP,
        datetime(2026, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    ),
    (FieldType.STRING, "\u00e9", "\u00e9", "e\u0301"),
    (FieldType.STRING, "x" * 100_000, "x" * 100_000, "x" * 99_999),
)


@THEME.proves("contract")
async def every_type_is_compared_exactly(scratch: Scratch) -> None:
    """Equal values are duplicates, whatever their type and length; the nearest others are not."""
    _claiming(scratch)
    for type_, one, equal, near in _ALIKE:
        subject = await scratch.subject(plain(type_, "v"), unique=(("v",),))
        applied(await subject.create("x", {"v": one}))
        _taken(await subject.create("y", {"v": equal}), "x", name="v")
        applied(await subject.create("z", {"v": near}), f"another {type_}")


@THEME.proves("contract")
async def any_id_and_any_text_may_be_unique(scratch: Scratch) -> None:
    """Neither ids nor values are taken for what they are not."""
    subject = await _subject(scratch)
    for text in filter(None, HOSTILE_TEXTS):
        applied(await subject.create(text, {"email": text}), "a text")
        _taken(await subject.create("other", {"email": text}), text)


@THEME.proves("contract")
async def a_constraint_can_go_and_come_back(scratch: Scratch) -> None:
    """Without the constraint nothing is taken; when it comes back, nothing of before is."""
    subject = await _subject(scratch)
    await subject.create("x", {"email": "a"})
    fragment, fields = subject.fragment, (_EMAIL, _TENANT, counter())
    free = await scratch.prepare(scratch.fragment(fragment.class_name, fields), fragment)
    applied(await free.create("y", {"email": "a"}), "a duplicate, without the constraint")
    await free.apply_all([free.deletion("x"), free.deletion("y")])
    bound = scratch.fragment(fragment.class_name, fields, unique=_SINGLE)
    back = await scratch.prepare(bound, free.fragment)
    applied(await back.create("z", {"email": "a"}), "a value that deleted records had")
    _taken(await back.create("x", {"email": "a"}), "z")


@THEME.proves("contract")
async def a_claim_can_be_made_alone(scratch: Scratch) -> None:
    """A record gets claims for what it has already, at the versions that it has, and no change."""
    subject = await _subject(scratch)
    fragment, fields = subject.fragment, (_EMAIL, _TENANT, counter())
    free = await scratch.prepare(scratch.fragment(fragment.class_name, fields), fragment)
    await free.apply_all([free.creation(f"{i}", {"email": f"{i}"}) for i in range(8)])
    await free.apply_all([free.creation(id_, {"email": "twin"}) for id_ in ("one", "other")])
    bound = scratch.fragment(fragment.class_name, fields, unique=_SINGLE)
    subject = await scratch.prepare(bound, free.fragment)
    ids = [f"{i}" for i in range(8)]
    before = await subject.read_all(ids)
    await _acknowledge(subject, ids)
    applied(await subject.write(await _claiming_alone(subject, ids[0])), "one claim")
    await subject.apply_all([await _claiming_alone(subject, id_) for id_ in ids])
    same(await subject.read_all(ids), before, "the records")
    same(await _unrelayed(subject, ids), set(), "the records with changes to be relayed")
    _taken(await subject.create("z", {"email": "3"}), "3")
    late = await _claiming_alone(subject, "4")
    applied(await subject.update("4", {"email": "moved"}), "a write")
    expect_status(await subject.write(late), Status.CONFLICT, "a claim of what it had")
    applied(await subject.create("z", {"email": "4"}), "a value that has become free")
    applied(await subject.write(await _claiming_alone(subject, "one")), "the first of two")
    _taken(await subject.write(await _claiming_alone(subject, "other")), "one")
    gone = await _claiming_alone(subject, "5")
    applied(await subject.delete("5"), "a deletion")
    expect_status(await subject.write(gone), Status.MISSING, "a claim of a deleted record")
    applied(await subject.create("w", {"email": "5"}), "what a deleted record had")


@THEME.proves("contract")
async def claims_can_be_corrected_alone(scratch: Scratch) -> None:
    """What a record claims that it has no more becomes free, and its own values are claimed."""
    subject = await _subject(scratch)
    await subject.apply_all([subject.creation(id_, {"email": id_}) for id_ in ("x", "y")])
    fragment, fields = subject.fragment, (_EMAIL, _TENANT, counter())
    free = await scratch.prepare(scratch.fragment(fragment.class_name, fields), fragment)
    await free.apply_all([free.change("x", {"email": "new"}), free.change("y", {"email": None})])
    subject = await scratch.prepare(
        scratch.fragment(fragment.class_name, fields, unique=_SINGLE), free.fragment
    )
    await subject.apply_all([await _claiming_alone(subject, id_) for id_ in ("x", "y")])
    _taken(await subject.create("z", {"email": "new"}), "x")
    await subject.apply_all([subject.creation(f"{id_}2", {"email": id_}) for id_ in ("x", "y")])


@THEME.proves("contract")
async def a_claim_that_is_made_alone_is_not_logged(scratch: Scratch) -> None:
    """An update of no group leaves nothing in the logs."""
    _claiming(scratch)
    reader = await ChangeReader.to(scratch, _EMAIL, unique=_SINGLE)
    version = applied(await reader.subject.create("x", {"email": "a"})).versions["main"]
    claiming = replace(reader.subject.change("x"), groups=(), claims={"email": "a claim"})
    applied(await reader.subject.write(claiming), "a claim")
    await expect_changes(reader, "x", ("main", "create", version, None, {"email": "a"}))


async def _acknowledge(subject: ScratchClass, ids: Sequence[str]) -> None:
    store = subject.store
    if isinstance(store, PendingChanges):
        await store.acknowledge(await store.pending(subject.fragment, ids))


async def _unrelayed(subject: ScratchClass, ids: Sequence[str]) -> set[str]:
    """Return those of some records that keep changes which are not acknowledged."""
    store = subject.store
    if not isinstance(store, PendingChanges):
        return set()
    return {*await store.sweep(subject.fragment, None, 100)}.intersection(ids)


async def _claiming_alone(subject: ScratchClass, id_: str) -> Write:
    """Return the write of what a record claims by its values, at the version that it has."""
    record = present(await subject.read(id_), id_)
    claims = claims_of(subject.fragment.unique, subject.fragment.fields, record.values)
    write = subject.change(id_, expect=dict(record.versions))
    return replace(write, groups=(), claims=claims)


async def _locked(
    scratch: Scratch, subject: ScratchClass, *ids: str, intent: str = INTENT
) -> Lockable:
    store = scratch.store
    if not isinstance(store, Lockable):
        raise NotOffered("the store takes no intents")
    await store.lock([(subject.fragment, id_) for id_ in ids], intent)
    return store


def _wanting(subject: ScratchClass, id_: str, email: str, intent: str = INTENT) -> Write:
    return subject.replacement(id_, {"email": email}, intent=intent)


async def _reserve(scratch: Scratch, *writes: Write) -> list[Taken | None]:
    return await _claiming(scratch).reserve(writes)


@THEME.proves("contract")
async def reservations_are_respected(scratch: Scratch) -> None:
    """What is reserved under an intent nobody else gets, and the record keeps what it has."""
    subject = await _subject(scratch)
    await subject.create("x", {"email": "old"})
    await _locked(scratch, subject, "x", "absent")
    for id_, email in (("x", "new"), ("absent", "made")):
        wanting = _wanting(subject, id_, email)
        same(await _reserve(scratch, wanting), [None], "a reservation")
        same(await _reserve(scratch, wanting), [None], "the same again")
        _taken(await subject.create("y", {"email": email}), id_, INTENT)
        same((await subject.read("absent")), None, "a record that is not there")
    _taken(await subject.create("y", {"email": "old"}), "x")
    same(await scratch.store.count(subject.fragment), 1, "count")
    same([r.id for r in await scratch.store.scan(subject.fragment, None, 9)], ["x"], "scan")
    for id_, email in (("x", "new"), ("absent", "made")):
        applied(await subject.write(_wanting(subject, id_, email)), "the write")
        _taken(await subject.create("y", {"email": email}), id_)
    applied(await subject.create("y", {"email": "old"}), "what has become free")


@THEME.proves("contract")
async def reservations_end_with_their_intent(scratch: Scratch) -> None:
    """Without the write, its values are free again, and the record has those of before."""
    subject = await _subject(scratch)
    await subject.create("x", {"email": "old"})
    for joint in (False, True):
        store = await _locked(scratch, subject, "x", "absent")
        wanting = [_wanting(subject, "x", "new"), _wanting(subject, "absent", "made")]
        same(await _reserve(scratch, *wanting), [None, None], "reservations")
        keys = [(subject.fragment, "x"), (subject.fragment, "absent")]
        await store.unlock(keys, OTHER, joint=joint)
        _taken(await subject.create("y", {"email": "new"}), "x", INTENT)
        await store.unlock(keys, INTENT, joint=joint)
        await store.lock(keys, OTHER)  # the next write finds nothing of the former one
        await subject.apply_all(
            [subject.creation("y", {"email": "new"}), subject.creation("z", {"email": "made"})]
        )
        _taken(await subject.create("w", {"email": "old"}), "x")
        await subject.apply_all([subject.deletion("y"), subject.deletion("z")])
        await store.unlock(keys, OTHER)


@THEME.proves("contract")
async def what_a_record_has_it_keeps_when_reserved(scratch: Scratch) -> None:
    """Reserving what a record has already takes nothing from it when the intent goes."""
    subject = await _subject(scratch)
    await subject.create("x", {"email": "a"})
    store = await _locked(scratch, subject, "x")
    same(await _reserve(scratch, _wanting(subject, "x", "a")), [None], "a reservation")
    await store.unlock([(subject.fragment, "x")], INTENT)
    _taken(await subject.create("y", {"email": "a"}), "x")
    await _locked(scratch, subject, "x")
    await _reserve(scratch, _wanting(subject, "x", "a"))
    applied(await subject.delete("x", intent=INTENT), "a deletion")
    applied(await subject.create("y", {"email": "a"}), "after it")


@THEME.proves("contract")
async def only_what_is_free_is_reserved(scratch: Scratch) -> None:
    """A reservation is refused for what others have, by their values or under another intent."""
    subject = await _subject(scratch, (("email",), ("tenant",)))
    await subject.create("x", {"email": "a"})
    await _locked(scratch, subject, "p", "q")
    await _locked(scratch, subject, "r", intent=OTHER)
    both = subject.replacement("p", {"tenant": "t", "email": "a"}, intent=INTENT)
    same(await _reserve(scratch, both), [Taken("email", "x")], "one that is taken")
    applied(await subject.create("y", {"tenant": "t"}), "what was not reserved beside it")
    twins = [_wanting(subject, "p", "b"), _wanting(subject, "q", "b")]
    same(await _reserve(scratch, *twins), [None, Taken("email", "p", INTENT)], "twins")
    foreign = _wanting(subject, "r", "b", OTHER)
    same(await _reserve(scratch, foreign), [Taken("email", "p", INTENT)], "another intent")


@THEME.proves("contract")
async def without_its_intent_a_record_reserves_nothing(scratch: Scratch) -> None:
    """A coordinator that was aborted reserves nothing any more."""
    subject = await _subject(scratch)
    await subject.create("x", {"email": "a"})
    store = await _locked(scratch, subject, "x", "absent")
    await store.unlock([(subject.fragment, "x"), (subject.fragment, "absent")], INTENT)
    late = [_wanting(subject, "x", "b"), _wanting(subject, "absent", "c")]
    await _reserve(scratch, *late)
    await _locked(scratch, subject, "x", "absent", intent=OTHER)
    await _reserve(scratch, *late)
    await subject.apply_all(
        [subject.creation("y", {"email": "b"}), subject.creation("z", {"email": "c"})]
    )


@THEME.proves("contract")
async def reservations_race_with_writes(scratch: Scratch) -> None:
    """Of reservations, writes and unlocking at the same time, one gets the value."""
    subject = await _subject(scratch)
    for number in range(ROUNDS):
        email, ids = f"e{number}", [f"{number}.{i}" for i in range(8)]
        store = await _locked(scratch, subject, *ids)
        reserving = [_reserve(scratch, _wanting(subject, id_, email)) for id_ in ids]
        writing = [subject.create(f"w{id_}", {"email": email}) for id_ in ids]
        unlocking = store.unlock([(subject.fragment, ids[0])], INTENT)
        both = asyncio.gather(asyncio.gather(*reserving), asyncio.gather(*writing), unlocking)
        replies, results, _ = await both
        reserved = [id_ for id_, reply in zip(ids, replies, strict=True) if reply == [None]]
        written = [result for result in results if result.status is Status.APPLIED]
        left = [id_ for id_ in reserved if id_ != ids[0]]
        require(len(written) + len(left) <= 1, f"{left} and {len(written)} writes got one value")
        for id_ in left:
            applied(await subject.write(_wanting(subject, id_, email)), "what was reserved")
        locked = [(subject.fragment, id_) for id_ in ids]
        await store.unlock(locked, INTENT)
        holders = await _holders(subject, [*ids, *(f"w{id_}" for id_ in ids)], email)
        require(len(holders) <= 1, f"{holders} have one value")
