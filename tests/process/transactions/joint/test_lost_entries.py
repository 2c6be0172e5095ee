"""Blind puts whose entries the log has lost in a crash: their intents carry the redo record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import delete

from mediator.base.errors import OutcomeUnknown, Unavailable
from mediator.catalogue.tables import transactions as table
from mediator.model.operations import Outcome, WriteOperation
from mediator.stores.port import Write
from mediator.transactions.log import State
from tests.faults.conditions import eventually
from tests.process.service import Service, inc, unique
from tests.process.transactions.crashable import CrashPoint, Killed
from tests.process.transactions.joint.pairs import (
    AFTER,
    OLD,
    CrashAt,
    LateLock,
    attempt,
    state,
    unavailable,
    write_of,
)
from tests.process.transactions.open_writes import all_over, expire, intents_on, meet, open_writes

SYSTEMS = ("postgres", "redis")


async def lose(mediator: Service) -> None:
    """Remove entries that did not wait for the disk, as a crash of the catalogue can."""
    lost = table.c.state.in_((State.PREPARING, State.STAGED))
    async with mediator.mediator.catalogue.begin() as connection:
        await connection.execute(delete(table).where(lost))


def begin_and_lose(mediator: Service) -> Any:
    """Return a `begin` after which the log loses the entry."""
    begin = mediator.mediator.transactions.log.begin

    async def begin_then_lose(*arguments: Any) -> bool:
        has_begun = await begin(*arguments)
        await lose(mediator)
        return has_begun

    return begin_then_lose


@pytest.mark.parametrize("exists", [False, True], ids=["creation", "replacement"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_put_killed_at_any_step_and_lost_is_atomic(
    mediator: Service, pairs: str, crashable: None, after: bool, exists: bool
) -> None:
    before = OLD if exists else None
    step, crash, states = 0, CrashPoint(0, after), []
    while not step or crash.is_over:
        crash, put = CrashPoint(step, after), write_of("put", pairs, unique())
        if exists:
            await mediator.create(pairs, "pairs", put.id, **OLD)
            await expire(mediator)
        acknowledged = await attempt(mediator, put, crash)
        await lose(mediator)
        await meet(mediator, put)
        states.append(await state(mediator, pairs, put.id))
        assert states[-1] in (AFTER["put"], before if not acknowledged else AFTER["put"]), crash
        await expire(mediator)
        assert await state(mediator, pairs, put.id) == states[-1], crash.taken
        step += 1
    assert states[0] == before
    assert states[-1] == AFTER["put"]


async def test_a_single_write_that_meets_a_lost_put_follows_it(
    mediator: Service, pairs: str, crashable: None, put: WriteOperation
) -> None:
    assert not await attempt(mediator, put, CrashAt("write", after=False))
    await lose(mediator)
    outcome = await mediator.mediator.data.write(inc(pairs, "pairs", put.id))
    assert outcome.values == {"hits": 2}
    assert await state(mediator, pairs, put.id) == {"title": "new", "hits": 2}
    await all_over(mediator)


async def test_the_coordinator_continues_when_the_log_has_lost_its_put(
    mediator: Service, pairs: str, monkeypatch: pytest.MonkeyPatch, put: WriteOperation
) -> None:
    monkeypatch.setattr(mediator.mediator.transactions.log, "begin", begin_and_lose(mediator))
    assert isinstance(await mediator.mediator.data.write(put), Outcome)
    assert await state(mediator, pairs, put.id) == AFTER["put"]
    assert await open_writes(mediator) == []


async def test_recovery_finds_a_lost_put_that_is_half_applied(
    mediator: Service, pairs: str, monkeypatch: pytest.MonkeyPatch, put: WriteOperation
) -> None:
    """Its coordinator, which cannot apply it, logs it again, so no other write has to meet it."""
    log: Any = mediator.mediator.transactions.log
    begin, commit = log.begin, log.commit
    with monkeypatch.context() as patched:
        patched.setattr(mediator.mediator.systems.get("redis").store, "write", unavailable)
        patched.setattr(log, "begin", begin_and_lose(mediator))

        async def restore_then_commit(*arguments: Any) -> Any:
            patched.setattr(log, "begin", begin)  # lost only once
            return await commit(*arguments)

        patched.setattr(log, "commit", restore_then_commit)
        with pytest.raises(OutcomeUnknown):
            await mediator.mediator.data.write(put)
    await expire(mediator)
    assert await state(mediator, pairs, put.id) == AFTER["put"]


async def test_a_put_that_is_lost_while_it_is_resolved_keeps_its_intents(
    mediator: Service,
    pairs: str,
    crashable: None,
    monkeypatch: pytest.MonkeyPatch,
    put: WriteOperation,
) -> None:
    """A missing entry does not mean finished: the resolver must not remove the intents."""
    assert not await attempt(mediator, put, CrashAt("write", after=False))
    log: Any = mediator.mediator.transactions.log
    commit = log.commit

    async def lose_then_commit(*arguments: Any) -> Any:
        await lose(mediator)
        return await commit(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(log, "commit", lose_then_commit)
        await expire(mediator)
    assert await intents_on(mediator, put)
    await meet(mediator, put)
    assert await state(mediator, pairs, put.id) == AFTER["put"]
    await all_over(mediator)


async def test_a_put_whose_intent_is_gone_where_it_was_met_is_not_refused(
    mediator: Service, pairs: str, monkeypatch: pytest.MonkeyPatch, put: WriteOperation
) -> None:
    """That record has been written since; the other one still has the intent."""
    intents = list[str]()

    async def record_and_kill(calls: Sequence[Write], *_: Any) -> Any:
        intents.append(calls[0].intent)
        raise Killed

    async def is_half_applied() -> bool:
        return [len(keys) for keys in (await intents_on(mediator, put)).values()] == [1]

    with monkeypatch.context() as patched:
        patched.setattr(mediator.mediator.systems.get("postgres").store, "write", record_and_kill)
        assert not await attempt(mediator, put, CrashPoint(0, after=False))
        await eventually(is_half_applied)
    await lose(mediator)
    route = await mediator.mediator.data.route(pairs, "pairs")
    keys = [(fragment, put.id) for fragment in route.fragments if fragment.system == "redis"]
    await mediator.mediator.transactions.resolver.resolve({intents[0]: keys})
    await meet(mediator, put)
    assert await state(mediator, pairs, put.id) == AFTER["put"]
    await all_over(mediator)


@pytest.mark.parametrize("forgotten", [False, True], ids=["known", "forgotten"])
async def test_a_put_that_others_complete_before_its_begin_arrives_happens_once(
    mediator: Service,
    pairs: str,
    monkeypatch: pytest.MonkeyPatch,
    put: WriteOperation,
    forgotten: bool,
) -> None:
    """Others meet its intents and log it again; its late begin must be refused."""
    log: Any = mediator.mediator.transactions.log
    begin, results = log.begin, list[bool]()

    async def is_complete() -> bool:
        [keys] = (await intents_on(mediator, put)).values() or [()]
        return len(keys) == len(SYSTEMS)

    async def begin_late(*arguments: Any) -> bool:
        if not results:
            results.append(True)
            await eventually(is_complete)
            await meet(mediator, put)
            if forgotten:
                await all_over(mediator)
                await begin(*arguments)
                raise Unavailable("no answer", system="the catalogue")
        results.append(await begin(*arguments))
        return results[-1]

    monkeypatch.setattr(log, "begin", begin_late)
    assert isinstance(await mediator.mediator.data.write(put), Outcome)
    assert forgotten or results[-1] is False
    await mediator.mediator.data.write(inc(pairs, "pairs", put.id))
    await expire(mediator)
    assert await state(mediator, pairs, put.id) == {"title": "new", "hits": 2}


@pytest.mark.parametrize("forgotten", [False, True], ids=["known", "forgotten"])
async def test_an_aborted_put_does_not_come_back_with_its_late_intents(
    mediator: Service,
    pairs: str,
    monkeypatch: pytest.MonkeyPatch,
    put: WriteOperation,
    forgotten: bool,
) -> None:
    """All its intents arrive after its end, when others have written the object."""
    stores = [mediator.mediator.systems.get(name).store for name in SYSTEMS]
    late = [LateLock(store) for store in stores]
    with monkeypatch.context() as patched:
        for store, lock in zip(stores, late, strict=True):
            patched.setattr(store, "lock", lock)
        with pytest.raises(Unavailable):
            await mediator.mediator.data.write(put)
    if forgotten:
        await all_over(mediator)
    await mediator.mediator.data.write(inc(pairs, "pairs", put.id))
    for lock in late:
        await lock.arrive()
    await meet(mediator, put)
    await all_over(mediator)
    assert await state(mediator, pairs, put.id) == {"title": "old", "hits": 11}
