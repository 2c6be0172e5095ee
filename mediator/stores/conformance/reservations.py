"""Reservations: future values of a record are kept for it under an intent."""

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


async def _lock(
    scratch: Scratch, subject: ScratchClass, *ids: str, intent: str = INTENT
) -> Lockable:
    store = lockable(scratch)
    await store.lock([(subject.fragment, id_) for id_ in ids], intent, "redo")
    return store


def _replacement(subject: ScratchClass, id_: str, email: str, intent: str = INTENT) -> Write:
    return subject.replacement(id_, {"email": email}, intent=intent)


async def _reserve(scratch: Scratch, *writes: Write) -> list[TakenClaim | None]:
    return await claiming_store(scratch).reserve(writes)


@THEME.proves("contract")
async def reservations_are_respected(scratch: Scratch) -> None:
    """No other record gets a reserved value, and the record keeps its present one."""
    subject = await unique_subject(scratch)
    await subject.create("x", {"email": "old"})
    await _lock(scratch, subject, "x", "absent")
    for id_, email in (("x", "new"), ("absent", "made")):
        write = _replacement(subject, id_, email)
        same(await _reserve(scratch, write), [None], "a reservation")
        same(await _reserve(scratch, write), [None], "the same again")
        expect_taken(await subject.create("y", {"email": email}), id_, INTENT)
        same((await subject.read("absent")), None, "a record that is not there")
    expect_taken(await subject.create("y", {"email": "old"}), "x")
    same(await scratch.store.count(subject.fragment), 1, "count")
    same([r.id for r in await scratch.store.scan(subject.fragment, None, 9)], ["x"], "scan")
    for id_, email in (("x", "new"), ("absent", "made")):
        applied(await subject.write(_replacement(subject, id_, email)), "the write")
        expect_taken(await subject.create("y", {"email": email}), id_)
    applied(await subject.create("y", {"email": "old"}), "what has become free")


@THEME.proves("contract")
async def reservations_end_with_their_intent(scratch: Scratch) -> None:
    """Without the write, its values become free, and the record keeps its earlier ones."""
    subject = await unique_subject(scratch)
    await subject.create("x", {"email": "old"})
    for joint in (False, True):
        store = await _lock(scratch, subject, "x", "absent")
        writes = [_replacement(subject, "x", "new"), _replacement(subject, "absent", "made")]
        same(await _reserve(scratch, *writes), [None, None], "reservations")
        keys = [(subject.fragment, "x"), (subject.fragment, "absent")]
        await store.unlock(keys, OTHER, joint=joint)
        expect_taken(await subject.create("y", {"email": "new"}), "x", INTENT)
        await store.unlock(keys, INTENT, joint=joint)
        await expect_no_redo(store, subject, "x", "absent")
        await store.lock(keys, OTHER)  # the next write finds nothing of the former write
        await subject.apply_all(
            [subject.creation("y", {"email": "new"}), subject.creation("z", {"email": "made"})]
        )
        expect_taken(await subject.create("w", {"email": "old"}), "x")
        await subject.apply_all([subject.deletion("y"), subject.deletion("z")])
        await store.unlock(keys, OTHER)


@THEME.proves("contract")
async def reserving_keeps_present_values(scratch: Scratch) -> None:
    """Reserving a value that the record has does not release it when the intent is removed."""
    subject = await unique_subject(scratch)
    await subject.create("x", {"email": "a"})
    store = await _lock(scratch, subject, "x")
    same(await _reserve(scratch, _replacement(subject, "x", "a")), [None], "a reservation")
    await store.unlock([(subject.fragment, "x")], INTENT)
    expect_taken(await subject.create("y", {"email": "a"}), "x")
    await _lock(scratch, subject, "x")
    await _reserve(scratch, _replacement(subject, "x", "a"))
    applied(await subject.delete("x", intent=INTENT), "a deletion")
    applied(await subject.create("y", {"email": "a"}), "after it")


@THEME.proves("contract")
async def only_free_values_are_reserved(scratch: Scratch) -> None:
    """A reservation is refused for claims of other records, by values or under another intent."""
    subject = await unique_subject(scratch, (("email",), ("tenant",)))
    await subject.create("x", {"email": "a"})
    await _lock(scratch, subject, "p", "q")
    await _lock(scratch, subject, "r", intent=OTHER)
    two_claims = subject.replacement("p", {"tenant": "t", "email": "a"}, intent=INTENT)
    same(await _reserve(scratch, two_claims), [TakenClaim("email", "x")], "one that is taken")
    applied(await subject.create("y", {"tenant": "t"}), "what was not reserved beside it")
    twins = [_replacement(subject, "p", "b"), _replacement(subject, "q", "b")]
    same(await _reserve(scratch, *twins), [None, TakenClaim("email", "p", INTENT)], "twins")
    foreign = _replacement(subject, "r", "b", OTHER)
    same(await _reserve(scratch, foreign), [TakenClaim("email", "p", INTENT)], "another intent")


@THEME.proves("contract")
async def a_record_without_the_intent_reserves_nothing(scratch: Scratch) -> None:
    """An aborted coordinator reserves nothing any more."""
    subject = await unique_subject(scratch)
    await subject.create("x", {"email": "a"})
    store = await _lock(scratch, subject, "x", "absent")
    await store.unlock([(subject.fragment, "x"), (subject.fragment, "absent")], INTENT)
    late = [_replacement(subject, "x", "b"), _replacement(subject, "absent", "c")]
    await _reserve(scratch, *late)
    await _lock(scratch, subject, "x", "absent", intent=OTHER)
    await _reserve(scratch, *late)
    await subject.apply_all(
        [subject.creation("y", {"email": "b"}), subject.creation("z", {"email": "c"})]
    )


@THEME.proves("contract")
async def reservations_race_with_writes(scratch: Scratch) -> None:
    """Of concurrent reservations, writes and unlocking, one gets the value."""
    subject = await unique_subject(scratch)
    for number in range(ROUNDS):
        email, ids = f"e{number}", [f"{number}.{i}" for i in range(8)]
        store = await _lock(scratch, subject, *ids)
        reserving = [_reserve(scratch, _replacement(subject, id_, email)) for id_ in ids]
        writing = [subject.create(f"w{id_}", {"email": email}) for id_ in ids]
        unlocking = store.unlock([(subject.fragment, ids[0])], INTENT)
        all_calls = asyncio.gather(asyncio.gather(*reserving), asyncio.gather(*writing), unlocking)
        replies, results, _ = await all_calls
        reserved_ids = [id_ for id_, reply in zip(ids, replies, strict=True) if reply == [None]]
        written = [result for result in results if result.status is Status.APPLIED]
        unreleased = [id_ for id_ in reserved_ids if id_ != ids[0]]
        require(
            len(written) + len(unreleased) <= 1,
            f"{unreleased} and {len(written)} writes got one value",
        )
        for id_ in unreleased:
            applied(await subject.write(_replacement(subject, id_, email)), "what was reserved")
            await expect_no_redo(store, subject, id_)
        keys = [(subject.fragment, id_) for id_ in ids]
        await store.unlock(keys, INTENT)
        holders = await holders_of(subject, [*ids, *(f"w{id_}" for id_ in ids)], email)
        require(len(holders) <= 1, f"{holders} have one value")
