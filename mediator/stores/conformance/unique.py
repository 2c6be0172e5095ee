"""Unique constraints: no two records of a class have the same claim, whatever writes race."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from mediator.schema.types import FieldType, Value
from mediator.schema.unique import claims_of
from mediator.stores.conformance.change_reader import ChangeReader, expect_changes, relay
from mediator.stores.conformance.check import Theme
from mediator.stores.conformance.expect import (
    applied,
    expect_status,
    expect_statuses,
    present,
    same,
)
from mediator.stores.conformance.samples import HOSTILE_TEXTS, counter, plain
from mediator.stores.conformance.scratch import Scratch, ScratchClass
from mediator.stores.conformance.unique_cases import (
    EMAIL,
    PAIR,
    ROUNDS,
    SINGLE,
    TENANT,
    claiming_store,
    expect_taken,
    holders_of,
    unique_subject,
)
from mediator.stores.port import Status, Write, WriteKind

__all__ = ["THEME"]

THEME = Theme("unique")

WRITERS: Final = 24


@THEME.proves("contract")
async def one_writer_gets_a_value(scratch: Scratch) -> None:
    """Exactly one of several racing writers, of any kind, gets a value."""
    subject = await unique_subject(scratch)
    for number in range(ROUNDS):
        email, ids = f"e{number}", [f"{number}.{i}" for i in range(WRITERS)]
        existing = [subject.creation(id_, {"email": id_}) for id_ in ids[::3]]
        await subject.apply_all(existing)
        builders = (subject.change, subject.creation, subject.replacement)
        writes = [builders[i % 3](id_, {"email": email}) for i, id_ in enumerate(ids)]
        results = await asyncio.gather(*map(subject.write, writes))
        winners = [id_ for id_, r in zip(ids, results, strict=True) if r.status is Status.APPLIED]
        same(len(winners), 1, "writers that got the value")
        same(await holders_of(subject, ids, email), winners, "the records with the value")
        for id_, result in zip(ids, results, strict=True):
            if id_ != winners[0]:
                expect_taken(result, winners[0])


@THEME.proves("contract")
async def taken_values_are_refused(scratch: Scratch) -> None:
    """Creations, replacements and updates are refused, and leave everything unchanged."""
    subject = await unique_subject(scratch)
    await subject.create("x", {"email": "a"})
    await subject.create("y", {"email": "b", "n": 1})
    before = await subject.read("y")
    for options in ({}, {"remember": "f"}, {"returning": ()}):
        expect_taken(await subject.create("z", {"email": "a"}, **options), "x")
        expect_taken(await subject.replace("z", {"email": "a"}, **options), "x")
        same(await subject.read("z"), None, "the record that was not made")
        expect_taken(await subject.replace("y", {"email": "a"}, **options), "x")
        expect_taken(await subject.update("y", {"email": "a", "n": 2}, **options), "x")
        same(await subject.read("y"), before, "the record that was not changed")
    expect_status(await subject.create("x", {"email": "b"}), Status.EXISTS, "one that exists")
    applied(await subject.update("y", {"n": 3}), "an update of another field")
    applied(await subject.create("z", {"email": "c"}), "another value")


@THEME.proves("contract")
async def writes_of_a_call_are_refused_separately(scratch: Scratch) -> None:
    """Of many writes in one call, only those with taken values are refused."""
    subject = await unique_subject(scratch)
    await subject.create("x", {"email": "7"})
    ids = [f"{i}" for i in range(20)]
    results = await subject.write_all([subject.creation(i, {"email": i}) for i in ids])
    expected = [Status.TAKEN if id_ == "7" else Status.APPLIED for id_ in ids]
    expect_statuses(results, expected, "creations")
    repeated = [subject.creation(f"again {i}", {"email": i}) for i in ids]
    expect_statuses(await subject.write_all(repeated), [Status.TAKEN] * 20, "the same values")
    twins = [subject.creation(f"twin {i}", {"email": "twin"}) for i in range(200)]
    statuses = [result.status for result in await subject.write_all(twins)]
    same(statuses.count(Status.APPLIED), 1, "one value in one call")


@THEME.proves("contract")
async def a_value_becomes_free(scratch: Scratch) -> None:
    """Deletion, replacement, and updates that set, null or remove a value release it."""
    subject = await unique_subject(scratch)
    releases: Sequence[tuple[str, Write]] = (
        ("deletion", subject.deletion("x")),
        ("replacement", subject.replacement("x", {"email": "other"})),
        ("replacement without it", subject.replacement("x", {"n": 1})),
        ("update", subject.change("x", {"email": "another"})),
        ("null", subject.change("x", {"email": None})),
        ("removal", subject.writing(WriteKind.UPDATE, "x", unset=("email",))),
    )
    for label, write in releases:
        applied(await subject.replace("x", {"email": "a"}), "a first record")
        expect_taken(await subject.create("y", {"email": "a"}), "x")
        applied(await subject.write(write), label)
        applied(await subject.create("y", {"email": "a"}), f"after {label}")
        expect_taken(await subject.replace("x", {"email": "a"}), "y")
        applied(await subject.delete("y"), "the second record")


@THEME.proves("contract")
async def a_record_keeps_its_value(scratch: Scratch) -> None:
    """A record does not conflict with itself when its value is written a second time."""
    subject = await unique_subject(scratch)
    result = applied(await subject.create("x", {"email": "a"}, operation="o", remember="f"))
    for write in (
        subject.replacement("x", {"email": "a"}),
        subject.change("x", {"email": "a", "n": 1}),
        subject.change("x", {"n": 2}),
        subject.change("x", {"email": "b"}),
        subject.change("x", {"email": "a"}),
    ):
        applied(await subject.write(write), "a write of the record")
    expect_taken(await subject.create("y", {"email": "a"}), "x")
    retry = await subject.create("x", {"email": "a"}, operation="o", remember="f")
    same(expect_status(retry, Status.REPLAYED, "a retry").versions, result.versions, "versions")


@THEME.proves("contract")
async def null_and_missing_are_not_unique(scratch: Scratch) -> None:
    """Records are no duplicates if a value, or one of several, is missing or null."""
    subject = await unique_subject(scratch, (("email",), ("tenant", "email")))
    await subject.apply_all([subject.creation(f"m{i}", {"n": i}) for i in range(8)])
    await subject.apply_all([subject.creation(f"n{i}", {"email": None}) for i in range(8)])
    partial = await scratch.subject(EMAIL, TENANT, unique=PAIR)
    await partial.apply_all([partial.creation(f"t{i}", {"tenant": "t"}) for i in range(8)])
    await partial.apply_all([partial.replacement(f"e{i}", {"email": "e"}) for i in range(8)])


@THEME.proves("contract")
async def values_are_compared_together(scratch: Scratch) -> None:
    """A constraint of several fields compares them as a whole, in their order."""
    subject = await unique_subject(scratch, PAIR)
    pairs = [("a", "b"), ("b", "a"), ("ab", ""), ("", "ab"), ("a,", "b"), ("a", ",b")]
    writes = [subject.creation(f"{t}|{e}", {"tenant": t, "email": e}) for t, e in pairs]
    await subject.apply_all(writes)
    for tenant, email in pairs:
        result = await subject.create("z", {"tenant": tenant, "email": email})
        expect_taken(result, f"{tenant}|{email}", name="tenant,email")
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
    claiming_store(scratch)
    for type_, value, equal, near in _ALIKE:
        subject = await scratch.subject(plain(type_, "v"), unique=(("v",),))
        applied(await subject.create("x", {"v": value}))
        expect_taken(await subject.create("y", {"v": equal}), "x", name="v")
        applied(await subject.create("z", {"v": near}), f"another {type_}")


@THEME.proves("contract")
async def any_id_and_any_text_may_be_unique(scratch: Scratch) -> None:
    """Ids and values with meanings elsewhere are compared literally."""
    subject = await unique_subject(scratch)
    for text in filter(None, HOSTILE_TEXTS):
        applied(await subject.create(text, {"email": text}), "a text")
        expect_taken(await subject.create("other", {"email": text}), text)


@THEME.proves("contract")
async def a_constraint_can_go_and_come_back(scratch: Scratch) -> None:
    """Without the constraint nothing is taken; a restored constraint keeps no old claims."""
    subject = await unique_subject(scratch)
    await subject.create("x", {"email": "a"})
    fragment, fields = subject.fragment, (EMAIL, TENANT, counter())
    unconstrained = await scratch.prepare(scratch.fragment(fragment.class_name, fields), fragment)
    applied(await unconstrained.create("y", {"email": "a"}), "a duplicate, without the constraint")
    await unconstrained.apply_all([unconstrained.deletion("x"), unconstrained.deletion("y")])
    constrained = scratch.fragment(fragment.class_name, fields, unique=SINGLE)
    restored = await scratch.prepare(constrained, unconstrained.fragment)
    applied(await restored.create("z", {"email": "a"}), "a value that deleted records had")
    expect_taken(await restored.create("x", {"email": "a"}), "z")


@THEME.proves("contract")
async def a_claim_can_be_made_alone(scratch: Scratch) -> None:
    """A record gets claims for its present values, without a new version or a change."""
    subject = await unique_subject(scratch)
    fragment, fields = subject.fragment, (EMAIL, TENANT, counter())
    unconstrained = await scratch.prepare(scratch.fragment(fragment.class_name, fields), fragment)
    await unconstrained.apply_all(
        [unconstrained.creation(f"{i}", {"email": f"{i}"}) for i in range(8)]
    )
    await unconstrained.apply_all(
        [unconstrained.creation(id_, {"email": "twin"}) for id_ in ("one", "other")]
    )
    constrained = scratch.fragment(fragment.class_name, fields, unique=SINGLE)
    subject = await scratch.prepare(constrained, unconstrained.fragment)
    ids = [f"{i}" for i in range(8)]
    before = await subject.read_all(ids)
    await relay(subject, ids)
    applied(await subject.write(await _claim_write(subject, ids[0])), "one claim")
    await subject.apply_all([await _claim_write(subject, id_) for id_ in ids])
    same(await subject.read_all(ids), before, "the records")
    same(await relay(subject, ids), [], "changes to be relayed")
    expect_taken(await subject.create("z", {"email": "3"}), "3")
    late = await _claim_write(subject, "4")
    applied(await subject.update("4", {"email": "moved"}), "a write")
    expect_status(await subject.write(late), Status.CONFLICT, "a claim of what it had")
    applied(await subject.create("z", {"email": "4"}), "a value that has become free")
    applied(await subject.write(await _claim_write(subject, "one")), "the first of two")
    expect_taken(await subject.write(await _claim_write(subject, "other")), "one")
    deleted = await _claim_write(subject, "5")
    applied(await subject.delete("5"), "a deletion")
    expect_status(await subject.write(deleted), Status.MISSING, "a claim of a deleted record")
    applied(await subject.create("w", {"email": "5"}), "what a deleted record had")


@THEME.proves("contract")
async def claims_can_be_corrected_alone(scratch: Scratch) -> None:
    """Obsolete claims of a record are released, and its present values are claimed."""
    subject = await unique_subject(scratch)
    await subject.apply_all([subject.creation(id_, {"email": id_}) for id_ in ("x", "y")])
    fragment, fields = subject.fragment, (EMAIL, TENANT, counter())
    unconstrained = await scratch.prepare(scratch.fragment(fragment.class_name, fields), fragment)
    await unconstrained.apply_all(
        [unconstrained.change("x", {"email": "new"}), unconstrained.change("y", {"email": None})]
    )
    subject = await scratch.prepare(
        scratch.fragment(fragment.class_name, fields, unique=SINGLE), unconstrained.fragment
    )
    await subject.apply_all([await _claim_write(subject, id_) for id_ in ("x", "y")])
    expect_taken(await subject.create("z", {"email": "new"}), "x")
    await subject.apply_all([subject.creation(f"{id_}2", {"email": id_}) for id_ in ("x", "y")])


@THEME.proves("contract")
async def claims_without_changes_are_not_logged(scratch: Scratch) -> None:
    """An update without groups logs nothing."""
    claiming_store(scratch)
    reader = await ChangeReader.to(scratch, EMAIL, unique=SINGLE)
    version = applied(await reader.subject.create("x", {"email": "a"})).versions["main"]
    claim_write = replace(reader.subject.change("x"), claims={"email": "a claim"})
    applied(await reader.subject.write(claim_write), "a claim")
    await expect_changes(reader, "x", ("main", "create", version, None, {"email": "a"}))


async def _claim_write(subject: ScratchClass, id_: str) -> Write:
    """Return the write of a record's claims by its values, at its present version."""
    record = present(await subject.read(id_), id_)
    claims = claims_of(subject.fragment.unique, subject.fragment.fields, record.values)
    write = subject.change(id_, expect=dict(record.versions))
    return replace(write, claims=claims)
