"""Blind puts whose entries the log has lost in a crash: their intents carry what they are."""

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
    """Take back what does not wait for the disk, as a crash of the catalogue may."""
    lost = table.c.state.in_((State.PREPARING, State.STAGED))
    async with mediator.mediator.catalogue.begin() as connection:
        await connection.execute(delete(table).where(lost))


def losing(mediator: Service) -> Any:
    """Return a begin after which the log has lost the entry."""
    begin = mediator.mediator.transactions.log.begin

    async def lost(*what: Any) -> bool:
        begun = await begin(*what)
        await lose(mediator)
        return begun

    return lost


@pytest.mark.parametrize("exists", [False, True], ids=["creation", "replacement"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_one_that_is_killed_at_any_step_and_lost_happens_wholly_or_not(
    mediator: Service, pairs: str, crashable: None, after: bool, exists: bool
) -> None:
    before = OLD if exists else None
    step, crash, found = 0, CrashPoint(0, after), []
    while not step or crash.is_over:
        crash, put = CrashPoint(step, after), write_of("put", pairs, unique())
        if exists:
            await mediator.create(pairs, "pairs", put.id, **OLD)
            await expire(mediator)
        acknowledged = await attempt(mediator, put, crash)
        await lose(mediator)
        await meet(mediator, put)
        found.append(await state(mediator, pairs, put.id))
        assert found[-1] in (AFTER["put"], before if not acknowledged else AFTER["put"]), crash
        await expire(mediator)
        assert await state(mediator, pairs, put.id) == found[-1], crash.taken
        step += 1
    assert found[0] == before
    assert found[-1] == AFTER["put"]


async def test_a_single_write_that_meets_one_that_is_lost_follows_it(
    mediator: Service, pairs: str, crashable: None, put: WriteOperation
) -> None:
    assert not await attempt(mediator, put, CrashAt("write", after=False))
    await lose(mediator)
    added = await mediator.mediator.data.write(inc(pairs, "pairs", put.id))
    assert added.values == {"hits": 2}
    assert await state(mediator, pairs, put.id) == {"title": "new", "hits": 2}
    await all_over(mediator)


async def test_its_coordinator_goes_on_when_the_log_has_lost_it(
    mediator: Service, pairs: str, monkeypatch: pytest.MonkeyPatch, put: WriteOperation
) -> None:
    monkeypatch.setattr(mediator.mediator.transactions.log, "begin", losing(mediator))
    assert isinstance(await mediator.mediator.data.write(put), Outcome)
    assert await state(mediator, pairs, put.id) == AFTER["put"]
    assert await open_writes(mediator) == []


async def test_recovery_finds_one_that_was_lost_and_is_not_applied_everywhere(
    mediator: Service, pairs: str, monkeypatch: pytest.MonkeyPatch, put: WriteOperation
) -> None:
    """Its coordinator has the log know it again, as it cannot apply it: nobody has to meet it."""
    log: Any = mediator.mediator.transactions.log
    begin, commit = log.begin, log.commit
    with monkeypatch.context() as patched:
        patched.setattr(mediator.mediator.systems.get("redis").store, "write", unavailable)
        patched.setattr(log, "begin", losing(mediator))

        async def committed(*what: Any) -> Any:
            patched.setattr(log, "begin", begin)  # lost once, and not again
            return await commit(*what)

        patched.setattr(log, "commit", committed)
        with pytest.raises(OutcomeUnknown):
            await mediator.mediator.data.write(put)
    await expire(mediator)
    assert await state(mediator, pairs, put.id) == AFTER["put"]


async def test_one_that_is_lost_while_it_is_resolved_keeps_its_intents(
    mediator: Service,
    pairs: str,
    crashable: None,
    monkeypatch: pytest.MonkeyPatch,
    put: WriteOperation,
) -> None:
    """What disappears under way is not over: its resolver must not remove the intents."""
    assert not await attempt(mediator, put, CrashAt("write", after=False))
    log: Any = mediator.mediator.transactions.log
    commit = log.commit

    async def lost_before(*what: Any) -> Any:
        await lose(mediator)
        return await commit(*what)

    with monkeypatch.context() as patched:
        patched.setattr(log, "commit", lost_before)
        await expire(mediator)
    assert await intents_on(mediator, put)
    await meet(mediator, put)
    assert await state(mediator, pairs, put.id) == AFTER["put"]
    await all_over(mediator)


async def test_one_whose_intent_is_gone_where_it_was_met_is_not_refused(
    mediator: Service, pairs: str, monkeypatch: pytest.MonkeyPatch, put: WriteOperation
) -> None:
    """That record was written since it was met; the other one still has the intent."""
    intents = list[str]()

    async def killed(calls: Sequence[Write], *_: Any) -> Any:
        intents.append(calls[0].intent)
        raise Killed

    async def is_half_applied() -> bool:
        return [len(keys) for keys in (await intents_on(mediator, put)).values()] == [1]

    with monkeypatch.context() as patched:
        patched.setattr(mediator.mediator.systems.get("postgres").store, "write", killed)
        assert not await attempt(mediator, put, CrashPoint(0, after=False))
        await eventually(is_half_applied)
    await lose(mediator)
    route = await mediator.mediator.data.route(pairs, "pairs")
    met = [(fragment, put.id) for fragment in route.fragments if fragment.system == "redis"]
    await mediator.mediator.transactions.resolver.resolve({intents[0]: met})
    await meet(mediator, put)
    assert await state(mediator, pairs, put.id) == AFTER["put"]
    await all_over(mediator)


@pytest.mark.parametrize("forgotten", [False, True], ids=["known", "forgotten"])
async def test_one_that_others_complete_before_its_begin_arrives_happens_once(
    mediator: Service,
    pairs: str,
    monkeypatch: pytest.MonkeyPatch,
    put: WriteOperation,
    forgotten: bool,
) -> None:
    """Others meet its intents, and log it again. Its begin is refused, or would begin it anew."""
    log: Any = mediator.mediator.transactions.log
    begin, answers = log.begin, list[bool]()

    async def is_complete() -> bool:
        [keys] = (await intents_on(mediator, put)).values() or [()]
        return len(keys) == len(SYSTEMS)

    async def late(*what: Any) -> bool:
        if not answers:
            answers.append(True)
            await eventually(is_complete)
            await meet(mediator, put)
            if forgotten:
                await all_over(mediator)
                await begin(*what)
                raise Unavailable("no answer", system="the catalogue")
        answers.append(await begin(*what))
        return answers[-1]

    monkeypatch.setattr(log, "begin", late)
    assert isinstance(await mediator.mediator.data.write(put), Outcome)
    assert forgotten or answers[-1] is False
    await mediator.mediator.data.write(inc(pairs, "pairs", put.id))
    await expire(mediator)
    assert await state(mediator, pairs, put.id) == {"title": "new", "hits": 2}


@pytest.mark.parametrize("forgotten", [False, True], ids=["known", "forgotten"])
async def test_one_that_was_aborted_does_not_come_back_with_its_late_intents(
    mediator: Service,
    pairs: str,
    monkeypatch: pytest.MonkeyPatch,
    put: WriteOperation,
    forgotten: bool,
) -> None:
    """All of its intents arrive after its end, when the object has been written by others."""
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
