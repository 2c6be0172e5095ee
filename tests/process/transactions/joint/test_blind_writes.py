"""Blind puts, which their intents commit, as coordinators and others find them."""

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
async def test_a_creation_killed_at_any_step_is_atomic(
    mediator: Service, pairs: str, crashable: None, after: bool
) -> None:
    step, crash, states = 0, CrashPoint(0, after), []
    while not step or crash.is_over:
        crash, put = CrashPoint(step, after), write_of("put", pairs, unique())
        acknowledged = await attempt(mediator, put, crash)
        await expire(mediator)
        states.append(await state(mediator, pairs, put.id))
        assert states[-1] in (AFTER["put"], None if not acknowledged else AFTER["put"]), crash.taken
        step += 1
    assert states[0] is None
    assert states[-1] == AFTER["put"]


async def test_a_put_with_all_intents_is_committed_before_it_is_logged_so(
    mediator: Service, pairs: str, crashable: None, put: WriteOperation
) -> None:
    """Its lease still runs; a write that meets it must not wait for the end of the lease."""
    assert not await attempt(mediator, put, CrashAt("write", after=False))
    assert await open_writes(mediator) == [State.STAGED]
    await mediator.mediator.data.write(write_of("update", pairs, put.id))
    assert await state(mediator, pairs, put.id) == {"title": "new", "hits": 2}
    await all_over(mediator)


async def test_a_half_applied_put_is_read_whole_or_as_partial(
    mediator: Service, pairs: str, crashable: None, put: WriteOperation
) -> None:
    assert not await attempt(mediator, put, CrashAt("write", after=True))
    get = Get(pairs, "pairs", put.id)
    outcome = await mediator.mediator.data.read(get, STRONG)
    assert (outcome.values, outcome.partial) == (AFTER["put"], ())
    await expire(mediator)


async def test_a_put_is_withdrawn_when_a_system_sets_no_intent(
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
async def test_a_put_that_others_found_complete_is_acknowledged_though_an_intent_was_not(
    mediator: Service,
    pairs: str,
    monkeypatch: pytest.MonkeyPatch,
    put: WriteOperation,
    redis: Any,
    forgotten: bool,
) -> None:
    """The intent arrived late; others found the write committed before it was withdrawn."""
    transactions = mediator.mediator.transactions
    late, log, abort = LateLock(redis), transactions.log, transactions.log.abort

    async def complete_then_abort(intent: str) -> State | None:
        await late.arrive()
        await transactions.resolver.resolve({intent: late.keys})
        if forgotten:
            await all_over(mediator)
        return await abort(intent)

    monkeypatch.setattr(redis, "lock", late)
    monkeypatch.setattr(log, "abort", complete_then_abort)
    outcome = await mediator.mediator.data.write(put)
    assert isinstance(outcome, Outcome)
    assert await state(mediator, pairs, put.id) == AFTER["put"]
    await all_over(mediator)


async def test_a_put_that_others_completed_and_overwrote_has_an_unknown_outcome(
    mediator: Service,
    pairs: str,
    monkeypatch: pytest.MonkeyPatch,
    put: WriteOperation,
    redis: Any,
) -> None:
    """The log has removed it, and the records were last written by another write."""
    transactions = mediator.mediator.transactions
    late, log, abort = LateLock(redis), transactions.log, transactions.log.abort

    async def overwrite_then_abort(intent: str) -> State | None:
        await late.arrive()
        await transactions.resolver.resolve({intent: late.keys})
        await all_over(mediator)
        monkeypatch.undo()
        # In a batch: a single write of this object would wait for the put here.
        [other] = await mediator.mediator.data.batch([write_of("update", pairs, put.id)])
        assert isinstance(other, Outcome)
        return await abort(intent)

    monkeypatch.setattr(redis, "lock", late)
    monkeypatch.setattr(log, "abort", overwrite_then_abort)
    with pytest.raises(OutcomeUnknown, match="have changed the object since"):
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
    """A later intent is not set; else its coordinator would apply half of the write."""
    late = LateLock(redis)
    with monkeypatch.context() as patched:
        patched.setattr(redis, "lock", late)
        assert not await attempt(mediator, put, CrashAt("abort", after=False))
    await expire(mediator)
    assert (await late.arrive()).intent == ""
    assert await state(mediator, pairs, put.id) == OLD


async def test_a_lost_answer_of_the_log_leaves_nothing_behind(
    mediator: Service, pairs: str, monkeypatch: pytest.MonkeyPatch, put: WriteOperation
) -> None:
    log: Any = mediator.mediator.transactions.log
    begin = log.begin

    async def begin_and_fail(*arguments: Any) -> Any:
        await begin(*arguments)
        await no_catalogue()

    monkeypatch.setattr(log, "begin", begin_and_fail)
    with pytest.raises(Unavailable):
        await mediator.mediator.data.write(put)
    await all_over(mediator)
    assert await state(mediator, pairs, put.id) == OLD


async def test_an_entry_that_has_not_arrived_is_refused(
    mediator: Service, pairs: str, monkeypatch: pytest.MonkeyPatch, put: WriteOperation
) -> None:
    log: Any = mediator.mediator.transactions.log
    begin, calls = log.begin, list[tuple[TransactionEntry, float]]()

    async def record_and_fail(*arguments: Any) -> Any:
        calls.append(arguments)
        await no_catalogue()

    with monkeypatch.context() as patched:
        patched.setattr(log, "begin", record_and_fail)
        with pytest.raises(Unavailable):
            await mediator.mediator.data.write(put)
    [arguments] = calls
    assert not await begin(*arguments)
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
    # It has all its intents, so it happens, although it was never in the log.
    assert await state(mediator, pairs, put.id) == {"title": "new", "hits": 2}


def record_first_states(mediator: Service, patched: pytest.MonkeyPatch) -> list[State]:
    """Record the first logged state of each write; return the list."""
    states: list[State] = []
    log: Any = mediator.mediator.transactions.log
    begin = log.begin

    async def record_and_begin(entry: TransactionEntry, lease_s: float) -> Any:
        states.append(entry.state)
        return await begin(entry, lease_s)

    patched.setattr(log, "begin", record_and_begin)
    return states


async def test_a_put_with_a_key_or_a_condition_takes_all_phases(
    mediator: Service, pairs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = record_first_states(mediator, monkeypatch)
    put = write_of("put", pairs, unique())
    await mediator.mediator.data.write(put)
    await mediator.mediator.data.write(replace(put, operation=unique(), fingerprint="f"))
    versions = (await mediator.get(pairs, "pairs", put.id)).versions
    condition = replace(put.condition, versions=(dict(versions),))
    await mediator.mediator.data.write(replace(put, operation=unique(), condition=condition))
    assert states == [State.STAGED, State.PREPARING, State.PREPARING]


async def test_a_large_put_takes_all_phases(
    mediator: Service, pairs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its intents would write it to each system a second time."""
    states = record_first_states(mediator, monkeypatch)
    for length in (BLIND_BYTES // 2, BLIND_BYTES):
        values: Values = {"title": "t" * length, "hits": 1}
        put = Put(pairs, "pairs", unique(), unique(), values=values)
        await mediator.mediator.data.write(put)
        assert await state(mediator, pairs, put.id) == values
    assert states == [State.STAGED, State.PREPARING]


async def test_a_class_cannot_be_dropped_while_a_put_is_open(
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
