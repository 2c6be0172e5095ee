"""Joint writes under way when their class is held: they finish, and the hold waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from mediator.base.errors import Conflict, Unavailable
from mediator.control import membership
from mediator.model.operations import Outcome, Put, Update
from mediator.transactions.model import CommitRequest
from tests.faults.conditions import eventually
from tests.process.control.test_placing_anew import is_held, pause_at
from tests.process.control.unique_building import fill_database, put, users
from tests.process.service import Service, unique

Writing = Callable[[Service, str], Coroutine[Any, Any, object]]

VALUES: dict[str, Any] = {"email": "new@x", "tenant": "t", "name": "n"}


async def write_blind(mediator: Service, database: str) -> object:
    return await mediator.mediator.data.write(
        Put(database, "users", "u00000", unique(), values=VALUES)
    )


async def write_update(mediator: Service, database: str) -> object:
    update = Update(database, "users", "u00000", unique(), values=VALUES)
    return await mediator.mediator.data.write(update)


async def write_batch(mediator: Service, database: str) -> object:
    update = Update(database, "users", "u00000", unique(), values=VALUES)
    [result] = await mediator.mediator.data.batch([update])
    assert isinstance(result, Outcome), result
    return result


async def write_transaction(mediator: Service, database: str) -> object:
    update = Update(database, "users", "u00000", unique(), values=VALUES)
    return await mediator.mediator.transactions.run(
        CommitRequest(database, unique(), (), (update,))
    )


KINDS = [write_blind, write_update, write_batch, write_transaction]


@pytest.mark.parametrize("write", KINDS, ids=lambda kind: kind.__name__)
async def test_a_joint_write_ends_although_its_class_is_held(
    mediator: Service, monkeypatch: pytest.MonkeyPatch, write: Writing
) -> None:
    database = await fill_database(mediator, "redis", ["a@x", "b@x"])
    pause = pause_at(monkeypatch, mediator.mediator.transactions.resolver.applier, "apply")
    writing = asyncio.create_task(write(mediator, database))
    await pause.reached.wait()
    change = asyncio.create_task(put(mediator, database, users("redis", unique=True)))
    await eventually(lambda: is_held(mediator, database, "users"))
    with pytest.raises(Unavailable, match="placed anew"):
        await mediator.create(database, "users", "late", email="late@x", name="l")
    pause.open.set()
    await writing
    assert (await change).version == 2
    assert await mediator.values(database, "users", "u00000") == VALUES


async def test_a_class_is_not_placed_anew_under_a_joint_write_under_way(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await fill_database(mediator, "redis", [])
    pause = pause_at(monkeypatch, mediator.mediator.transactions.resolver.applier, "apply")
    writing = asyncio.create_task(write_blind(mediator, database))
    await pause.reached.wait()
    change = asyncio.create_task(put(mediator, database, users("mongo")))
    await eventually(lambda: is_held(mediator, database, "users"))
    pause.open.set()
    await writing
    with pytest.raises(Conflict, match="created meanwhile"):
        await change
    assert await mediator.values(database, "users", "u00000") == VALUES


async def test_the_wait_for_a_joint_write_that_does_not_end_is_bounded(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await fill_database(mediator, "redis", ["a@x"])
    pause = pause_at(monkeypatch, mediator.mediator.transactions.resolver.applier, "apply")
    writing = asyncio.create_task(write_update(mediator, database))
    await pause.reached.wait()
    monkeypatch.setattr(membership, "TIMEOUT_S", 0.2)
    with pytest.raises(Unavailable, match="do not end"):
        await put(mediator, database, users("redis", unique=True))
    pause.open.set()
    await writing
    assert await mediator.values(database, "users", "u00000") == VALUES


async def test_a_replica_confirms_no_hold_while_it_does_a_joint_write(
    mediator: Service, replica: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await fill_database(mediator, "redis", ["a@x"])
    await replica.get(database, "users", "u00000")
    pause = pause_at(monkeypatch, replica.mediator.transactions.resolver.applier, "apply")
    writing = asyncio.create_task(write_update(replica, database))
    await pause.reached.wait()
    change = asyncio.create_task(put(mediator, database, users("redis", unique=True)))
    await eventually(lambda: is_held(replica, database, "users"))
    assert not change.done()
    pause.open.set()
    await writing
    assert (await change).version == 2
    assert await mediator.values(database, "users", "u00000") == VALUES
