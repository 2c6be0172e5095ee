"""Blind puts, which their intents commit: what their coordinators and others find of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mediator.base.errors import Conflict, OutcomeUnknown, Unavailable
from mediator.model.operations import Get, Outcome, Put, WriteOperation
from mediator.routing.freshness import ReadPreference
from mediator.schema.types import Values
from mediator.transactions.joint import BLIND_BYTES
from mediator.transactions.log import State, TransactionEntry
from tests.process.service import Service, unique
from tests.process.transactions.crashable import CrashPoint
from tests.process.transactions.joint.pairs import (
    AFTER,
    OLD,
    PAIRS,
    CrashAt,
    LateLock,
    attempt,
    state,
    unavailable,
    write_of,
)
from tests.process.transactions.open_writes import all_over, expire, open_writes

STRONG = ReadPreference("strong", whole=True)


@pytest.fixture
def redis(mediator: Service) -> Any:
    return mediator.mediator.systems.get("redis").store


async def no_catalogue(*_: object, **_more: object) -> Any:
    raise Unavailable("no answer", system="the catalogue")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_creation_killed_at_any_step_happens_wholly_or_not(
    mediator: Service, pairs: str, crashable: None, after: bool
) -> None:
    step, crash, found = 0, CrashPoint(0, after), []
    while not step or crash.is_over:
        crash, put = CrashPoint(step, after), write_of("put", pairs, unique())
        acknowledged = await attempt(mediator, put, crash)
        await expire(mediator)
        found.append(await state(mediator, pairs, put.id))
        assert found[-1] in (AFTER["put"], None if not acknowledged else AFTER["put"]), crash.taken
        step += 1
    assert found[0] is None
    assert found[-1] == AFTER["put"]


async def test_one_that_has_all_intents_is_committed_before_anybody_says_so(
    mediator: Service, pairs: str, crashable: None, put: WriteOperation
) -> None:
    """Its lease still runs, so whoever meets it must not wait for that."""
    assert not await attempt(mediator, put, CrashAt("write", after=False))
    assert await open_writes(mediator) == [State.STAGED]
    await mediator.mediator.data.write(write_of("update", pairs, put.id))
    assert await state(mediator, pairs, put.id) == {"title": "new", "hits": 2}
    await all_over(mediator)


async def test_one_that_is_half_applied_is_seen_whole_or_as_partial(
    mediator: Service, pairs: str, crashable: None, put: WriteOperation
) -> None:
    assert not await attempt(mediator, put, CrashAt("write", after=True))
    get = Get(pairs, "pairs", put.id)
    whole = await mediator.mediator.data.read(get, STRONG)
    assert (whole.values, whole.partial) == (AFTER["put"], ())
    await expire(mediator)


async def test_it_is_withdrawn_when_a_system_sets_no_intent(
    mediator: Service, pairs: str, monkeypatch: pytest.MonkeyPatch, put: WriteOperation, redis: Any
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(redis, "lock", unavailable)
        with pytest.raises(Unavailable):
            await mediator.mediator.data.write(put)
    await all_over(mediator)
    assert await state(mediator, pairs, put.id) == OLD


async def test_an_intent_that_arrives_after_the_end_belongs_to_no_write(
    mediator: Service, pairs: str, monkeypatch: pytest.MonkeyPatch, put: WriteOperation, redis: Any
) -> None:
    late = LateLock(redis)
    with monkeypatch.context() as patched:
        patched.setattr(redis, "lock", late)
        with pytest.raises(Unavailable):
            await mediator.mediator.data.write(put)
    await all_over(mediator)
    assert (await late.arrive()).intent == ""  # recovery has fenced the record
    await mediator.mediator.data.write(write_of("update", pairs, put.id))
    assert await state(mediator, pairs, put.id) == AFTER["update"]


@pytest.mark.parametrize("forgotten", [False, True], ids=["known", "forgotten"])
async def test_one_that_others_found_complete_is_acknowledged_though_an_intent_was_not(
    mediator: Service,
    pairs: str,
    monkeypatch: pytest.MonkeyPatch,
    put: WriteOperation,
    redis: Any,
    forgotten: bool,
) -> None:
    """The intent arrived after all; others found the write committed before it was withdrawn."""
    transactions = mediator.mediator.transactions
    late, log, abort = LateLock(redis), transactions.log, transactions.log.abort

    async def found_before(intent: str) -> State | None:
        await late.arrive()
        await transactions.resolver.resolve({intent: late.keys})
        if forgotten:
            await all_over(mediator)
        return await abort(intent)

    monkeypatch.setattr(redis, "lock", late)
    monkeypatch.setattr(log, "abort", found_before)
    answer = await mediator.mediator.data.write(put)
    assert isinstance(answer, Outcome)
    assert await state(mediator, pairs, put.id) == AFTER["put"]
    await all_over(mediator)


async def test_one_that_others_completed_and_overwrote_has_an_unknown_outcome(
    mediator: Service,
    pairs: str,
    monkeypatch: pytest.MonkeyPatch,
    put: WriteOperation,
    redis: Any,
) -> None:
    """The log has forgotten it, and the records were last written by the other."""
    transactions = mediator.mediator.transactions
    late, log, abort = LateLock(redis), transactions.log, transactions.log.abort

    async def overwritten_before(intent: str) -> State | None:
        await late.arrive()
        await transactions.resolver.resolve({intent: late.keys})
        await all_over(mediator)
        monkeypatch.undo()
        # In a batch: a write of this object by itself would wait here for the put.
        [other] = await mediator.mediator.data.batch([write_of("update", pairs, put.id)])
        assert isinstance(other, Outcome)
        return await abort(intent)

    monkeypatch.setattr(redis, "lock", late)
    monkeypatch.setattr(log, "abort", overwritten_before)
    with pytest.raises(OutcomeUnknown, match="written by others since"):
        await mediator.mediator.data.write(put)
    assert await state(mediator, pairs, put.id) == {"title": "new", "hits": 2}  # both have happened
    await all_over(mediator)


async def test_recovery_fences_the_records_before_it_aborts(
    mediator: Service,
    pairs: str,
    crashable: None,
    monkeypatch: pytest.MonkeyPatch,
    put: WriteOperation,
    redis: Any,
) -> None:
    """An intent that arrives later is not set: its coordinator would apply half of the write."""
    late = LateLock(redis)
    with monkeypatch.context() as patched:
        patched.setattr(redis, "lock", late)
        assert not await attempt(mediator, put, CrashAt("abort", after=False))
    await expire(mediator)
    assert (await late.arrive()).intent == ""
    assert await state(mediator, pairs, put.id) == OLD


async def test_an_answer_of_the_log_that_is_lost_leaves_nothing(
    mediator: Service, pairs: str, monkeypatch: pytest.MonkeyPatch, put: WriteOperation
) -> None:
    log: Any = mediator.mediator.transactions.log
    begin = log.begin

    async def unanswered(*what: Any) -> Any:
        await begin(*what)
        await no_catalogue()

    monkeypatch.setattr(log, "begin", unanswered)
    with pytest.raises(Unavailable):
        await mediator.mediator.data.write(put)
    await all_over(mediator)
    assert await state(mediator, pairs, put.id) == OLD


async def test_an_entry_that_has_not_arrived_is_refused(
    mediator: Service, pairs: str, monkeypatch: pytest.MonkeyPatch, put: WriteOperation
) -> None:
    log: Any = mediator.mediator.transactions.log
    begin, sent = log.begin, list[tuple[TransactionEntry, float]]()

    async def late(*what: Any) -> Any:
        sent.append(what)
        await no_catalogue()

    with monkeypatch.context() as patched:
        patched.setattr(log, "begin", late)
        with pytest.raises(Unavailable):
            await mediator.mediator.data.write(put)
    [what] = sent
    assert not await begin(*what)
    assert await state(mediator, pairs, put.id) == OLD


async def test_without_the_catalogue_its_outcome_is_unknown_until_it_is_back(
    mediator: Service, pairs: str, monkeypatch: pytest.MonkeyPatch, put: WriteOperation
) -> None:
    with monkeypatch.context() as patched:
        for name in ("begin", "abort"):
            patched.setattr(mediator.mediator.transactions.log, name, no_catalogue)
        with pytest.raises(OutcomeUnknown):
            await mediator.mediator.data.write(put)
    await mediator.mediator.data.write(write_of("update", pairs, put.id))
    # It has all of its intents, so it happens, although the log never knew it.
    assert await state(mediator, pairs, put.id) == {"title": "new", "hits": 2}


def note_begins(mediator: Service, patched: pytest.MonkeyPatch) -> list[State]:
    """Return the list to which the states are added in which writes are logged first."""
    seen: list[State] = []
    log: Any = mediator.mediator.transactions.log
    begin = log.begin

    async def noting(entry: TransactionEntry, lease_s: float) -> Any:
        seen.append(entry.state)
        return await begin(entry, lease_s)

    patched.setattr(log, "begin", noting)
    return seen


async def test_one_with_a_key_or_a_condition_takes_all_of_the_phases(
    mediator: Service, pairs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = note_begins(mediator, monkeypatch)
    put = write_of("put", pairs, unique())
    await mediator.mediator.data.write(put)
    await mediator.mediator.data.write(replace(put, operation=unique(), fingerprint="f"))
    versions = (await mediator.get(pairs, "pairs", put.id)).versions
    condition = replace(put.condition, versions=(dict(versions),))
    await mediator.mediator.data.write(replace(put, operation=unique(), condition=condition))
    assert seen == [State.STAGED, State.PREPARING, State.PREPARING]


async def test_one_that_is_large_takes_all_of_the_phases(
    mediator: Service, pairs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its intents would write it to each system once more."""
    seen = note_begins(mediator, monkeypatch)
    for length in (BLIND_BYTES // 2, BLIND_BYTES):
        values: Values = {"title": "t" * length, "hits": 1}
        put = Put(pairs, "pairs", unique(), unique(), values=values)
        await mediator.mediator.data.write(put)
        assert await state(mediator, pairs, put.id) == values
    assert seen == [State.STAGED, State.PREPARING]


async def test_a_class_cannot_be_dropped_while_one_is_open(
    mediator: Service, crashable: None, monkeypatch: pytest.MonkeyPatch, redis: Any
) -> None:
    database = await mediator.put_schema({"pairs": PAIRS, "others": PAIRS})
    put = write_of("put", database, unique())
    with monkeypatch.context() as patched:
        patched.setattr(redis, "lock", LateLock(redis))
        assert not await attempt(mediator, put, CrashAt("abort", after=False))
    with pytest.raises(Conflict, match="under way"):
        await mediator.mediator.control.set_schema(database, {"classes": {"others": PAIRS}})
    await expire(mediator)
    assert await state(mediator, database, put.id) is None
    await mediator.mediator.control.set_schema(database, {"classes": {"others": PAIRS}})
