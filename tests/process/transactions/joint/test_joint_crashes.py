"""Joint writes, killed at every step and resolved by others."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from mediator.base.errors import (
    IdempotencyReused,
    OutcomeUnknown,
)
from mediator.base.observation import RedoRecovered
from mediator.transactions.log import State
from tests.process.service import Service, unique
from tests.process.transactions.crashable import CrashPoint
from tests.process.transactions.joint.pairs import (
    AFTER,
    KINDS,
    OLD,
    CrashAt,
    attempt,
    state,
    unavailable,
    write_of,
)
from tests.process.transactions.open_writes import all_over, expire, let_overdue, open_writes


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_joint_write_killed_at_any_step_is_atomic(
    mediator: Service, pairs: str, crashable: None, kind: str, after: bool
) -> None:
    step, crash = 0, CrashPoint(0, after)
    while not step or crash.is_over:
        crash, id_ = CrashPoint(step, after), unique()
        if kind != "create":
            await mediator.create(pairs, "pairs", id_, **OLD)
        acknowledged = await attempt(mediator, write_of(kind, pairs, id_), crash)
        await expire(mediator)
        current = await state(mediator, pairs, id_)
        before = None if kind == "create" else OLD
        assert current == AFTER[kind] or (current == before and not acknowledged), crash.taken
        step += 1
    commit = set() if kind == "put" else {"commit"}  # a blind write is committed by its intents
    assert {"begin", "lock", "write"} | commit <= set(crash.taken)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_retry_with_the_same_key_finishes_a_killed_write(
    mediator: Service, pairs: str, crashable: None, kind: str
) -> None:
    data = mediator.mediator.data
    step, crash = 0, CrashPoint(0, after=True)
    while not step or crash.is_over:
        crash, id_ = CrashPoint(step, after=True), unique()
        if kind != "create":
            await mediator.create(pairs, "pairs", id_, **OLD)
        operation = replace(write_of(kind, pairs, id_), fingerprint="f")
        await attempt(mediator, operation, crash)
        await let_overdue(mediator)
        outcome = await data.recall(operation) or await data.write(operation)
        assert outcome.values is None or outcome.values["hits"] == AFTER[kind]["hits"]
        assert await state(mediator, pairs, id_) == AFTER[kind], crash.taken
        replayed = await data.recall(operation) or await data.write(operation)
        assert replayed.replayed
        assert replayed.versions == outcome.versions
        assert await state(mediator, pairs, id_) == AFTER[kind], crash.taken
        step += 1


async def test_retries_during_the_write_do_not_repeat_it(mediator: Service, pairs: str) -> None:
    id_ = unique()
    await mediator.create(pairs, "pairs", id_, title="old", hits=0)
    data = mediator.mediator.data
    operation = replace(write_of("update", pairs, id_), fingerprint="f")

    async def retry() -> Any:
        return await data.recall(operation) or await data.write(operation)

    outcomes = await asyncio.gather(data.write(operation), *(retry() for _ in range(5)))
    assert all(outcome.values == {"title": "new", "hits": 1} for outcome in outcomes)
    assert await state(mediator, pairs, id_) == {"title": "new", "hits": 1}
    with pytest.raises(IdempotencyReused):
        await data.write(replace(operation, fingerprint="g"))


async def test_two_replicas_recover_at_once(mediator: Service, pairs: str, crashable: None) -> None:
    ids = [unique() for _ in range(8)]
    for id_ in ids:
        await mediator.create(pairs, "pairs", id_, **OLD)
        crash = CrashAt("commit", after=True)
        assert not await attempt(mediator, write_of("update", pairs, id_), crash)
    await let_overdue(mediator)
    await asyncio.gather(*(mediator.mediator.transactions.resolver.recover() for _ in range(3)))
    await all_over(mediator)  # the background task can have taken some of them
    assert [await state(mediator, pairs, id_) for id_ in ids] == [AFTER["update"]] * len(ids)


async def test_a_write_is_completed_when_its_system_comes_back(
    mediator: Service, pairs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await all_over(mediator)
    operation = write_of("create", pairs, unique())
    redis: Any = mediator.mediator.systems.get("redis").store
    with monkeypatch.context() as patched:
        patched.setattr(redis, "write", unavailable)
        with pytest.raises(OutcomeUnknown):
            await mediator.mediator.data.write(operation)
        assert await open_writes(mediator) == [State.COMMITTED]
    await expire(mediator)
    assert await state(mediator, pairs, operation.id) == AFTER["create"]
    recoveries = [o for o in mediator.observed if isinstance(o, RedoRecovered)]
    assert (recoveries[-1].database, recoveries[-1].outcome) == (pairs, "applied")
