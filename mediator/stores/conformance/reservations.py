"""Reservations: values that a record will have are kept for it under an intent."""

from __future__ import annotations

import asyncio

from mediator.stores.conformance.check import Theme
from mediator.stores.conformance.expect import applied, require, same
from mediator.stores.conformance.intent_cases import INTENT, OTHER, expect_no_redo, lockable
from mediator.stores.conformance.scratch import Scratch, ScratchClass
from mediator.stores.conformance.unique_cases import (
    ROUNDS,
    claiming_store,
    expect_taken,
    holders_of,
    unique_subject,
)
from mediator.stores.port import Lockable, Status, TakenClaim, Write

__all__ = ["THEME"]

THEME = Theme("reservations")


async def _locked(
    scratch: Scratch, subject: ScratchClass, *ids: str, intent: str = INTENT
) -> Lockable:
    store = lockable(scratch)
    await store.lock([(subject.fragment, id_) for id_ in ids], intent, "redo")
    return store


def _wanting(subject: ScratchClass, id_: str, email: str, intent: str = INTENT) -> Write:
    return subject.replacement(id_, {"email": email}, intent=intent)


async def _reserve(scratch: Scratch, *writes: Write) -> list[TakenClaim | None]:
    return await claiming_store(scratch).reserve(writes)


@THEME.proves("contract")
async def reservations_are_respected(scratch: Scratch) -> None:
    """What is reserved under an intent nobody else gets, and the record keeps what it has."""
    subject = await unique_subject(scratch)
    await subject.create("x", {"email": "old"})
    await _locked(scratch, subject, "x", "absent")
    for id_, email in (("x", "new"), ("absent", "made")):
        wanting = _wanting(subject, id_, email)
        same(await _reserve(scratch, wanting), [None], "a reservation")
        same(await _reserve(scratch, wanting), [None], "the same again")
        expect_taken(await subject.create("y", {"email": email}), id_, INTENT)
        same((await subject.read("absent")), None, "a record that is not there")
    expect_taken(await subject.create("y", {"email": "old"}), "x")
    same(await scratch.store.count(subject.fragment), 1, "count")
    same([r.id for r in await scratch.store.scan(subject.fragment, None, 9)], ["x"], "scan")
    for id_, email in (("x", "new"), ("absent", "made")):
        applied(await subject.write(_wanting(subject, id_, email)), "the write")
        expect_taken(await subject.create("y", {"email": email}), id_)
    applied(await subject.create("y", {"email": "old"}), "what has become free")


@THEME.proves("contract")
async def reservations_end_with_their_intent(scratch: Scratch) -> None:
    """Without the write, its values are free again, and the record has those of before."""
    subject = await unique_subject(scratch)
    await subject.create("x", {"email": "old"})
    for joint in (False, True):
        store = await _locked(scratch, subject, "x", "absent")
        wanting = [_wanting(subject, "x", "new"), _wanting(subject, "absent", "made")]
        same(await _reserve(scratch, *wanting), [None, None], "reservations")
        keys = [(subject.fragment, "x"), (subject.fragment, "absent")]
        await store.unlock(keys, OTHER, joint=joint)
        expect_taken(await subject.create("y", {"email": "new"}), "x", INTENT)
        await store.unlock(keys, INTENT, joint=joint)
        await expect_no_redo(store, subject, "x", "absent")
        await store.lock(keys, OTHER)  # the next write finds nothing of the former one
        await subject.apply_all(
            [subject.creation("y", {"email": "new"}), subject.creation("z", {"email": "made"})]
        )
        expect_taken(await subject.create("w", {"email": "old"}), "x")
        await subject.apply_all([subject.deletion("y"), subject.deletion("z")])
        await store.unlock(keys, OTHER)


@THEME.proves("contract")
async def what_a_record_has_it_keeps_when_reserved(scratch: Scratch) -> None:
    """Reserving what a record has already takes nothing from it when the intent goes."""
    subject = await unique_subject(scratch)
    await subject.create("x", {"email": "a"})
    store = await _locked(scratch, subject, "x")
    same(await _reserve(scratch, _wanting(subject, "x", "a")), [None], "a reservation")
    await store.unlock([(subject.fragment, "x")], INTENT)
    expect_taken(await subject.create("y", {"email": "a"}), "x")
    await _locked(scratch, subject, "x")
    await _reserve(scratch, _wanting(subject, "x", "a"))
    applied(await subject.delete("x", intent=INTENT), "a deletion")
    applied(await subject.create("y", {"email": "a"}), "after it")


@THEME.proves("contract")
async def only_what_is_free_is_reserved(scratch: Scratch) -> None:
    """A reservation is refused for what others have, by their values or under another intent."""
    subject = await unique_subject(scratch, (("email",), ("tenant",)))
    await subject.create("x", {"email": "a"})
    await _locked(scratch, subject, "p", "q")
    await _locked(scratch, subject, "r", intent=OTHER)
    both = subject.replacement("p", {"tenant": "t", "email": "a"}, intent=INTENT)
    same(await _reserve(scratch, both), [TakenClaim("email", "x")], "one that is taken")
    applied(await subject.create("y", {"tenant": "t"}), "what was not reserved beside it")
    twins = [_wanting(subject, "p", "b"), _wanting(subject, "q", "b")]
    same(await _reserve(scratch, *twins), [None, TakenClaim("email", "p", INTENT)], "twins")
    foreign = _wanting(subject, "r", "b", OTHER)
    same(await _reserve(scratch, foreign), [TakenClaim("email", "p", INTENT)], "another intent")


@THEME.proves("contract")
async def without_its_intent_a_record_reserves_nothing(scratch: Scratch) -> None:
    """A coordinator that was aborted reserves nothing any more."""
    subject = await unique_subject(scratch)
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
    subject = await unique_subject(scratch)
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
            await expect_no_redo(store, subject, id_)
        locked = [(subject.fragment, id_) for id_ in ids]
        await store.unlock(locked, INTENT)
        holders = await holders_of(subject, [*ids, *(f"w{id_}" for id_ in ids)], email)
        require(len(holders) <= 1, f"{holders} have one value")
