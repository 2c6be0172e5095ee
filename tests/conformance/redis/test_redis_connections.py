"""Connections to Redis that are lost, late or refused."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from mediator.model.operators import Operator, OperatorCall
from mediator.stores.port import (
    Fragment,
    Read,
    StoreRefused,
    StoreTimeout,
    StoreUnavailable,
    SystemConfig,
)
from mediator.stores.redis import RedisStore
from tests.conformance.real_stores import open_soon
from tests.conformance.redis.records import (
    Server,
    StoreOpener,
    apply,
    put,
    value_of,
    with_options,
    write_one,
)
from tests.faults.conditions import eventually


async def kill(server: Server, name: str) -> int:
    clients = [c for c in await server.client_list() if c["name"] == name]
    for client in clients:
        await server.execute_command("CLIENT", "KILL", "ID", client["id"])
    return len(clients)


async def is_writing(server: Server, name: str) -> bool:
    return any(c["name"] == name and c["cmd"] == "evalsha" for c in await server.client_list())


async def test_flushed_scripts_are_reloaded(
    store: RedisStore, fragment: Fragment, server: Server
) -> None:
    await write_one(store, put(fragment, "a", hits=0, log=[]))
    increment = OperatorCall("hits", Operator.INC, 1)
    for _ in range(3):
        await server.script_flush()
        calls = [apply(fragment, id_, increment) for id_ in "aaaaaa"]
        await asyncio.gather(*(write_one(store, call) for call in calls))
    await server.script_flush()
    assert await value_of(store, fragment, "a", "hits") == 18


async def test_a_lost_connection_is_reopened(
    config: SystemConfig, opened: StoreOpener, fragment: Fragment, server: Server
) -> None:
    store = await opened(url=with_options(config, client_name="to_be_lost"))
    await write_one(store, put(fragment, "a", hits=1))
    assert await kill(server, "to_be_lost") == 1
    assert await value_of(store, fragment, "a", "hits") == 1


async def test_a_write_on_a_connection_that_breaks_is_not_retried(
    config: SystemConfig, opened: StoreOpener, fragment: Fragment, server: Server
) -> None:
    store = await opened(url=with_options(config, client_name="doomed"))
    await write_one(store, put(fragment, "a", hits=0))
    await server.execute_command("CLIENT", "PAUSE", 20_000, "WRITE")
    try:
        call = apply(fragment, "a", OperatorCall("hits", Operator.INC, 1))
        write_task = asyncio.create_task(write_one(store, call))
        while not await is_writing(server, "doomed"):
            pass
        await kill(server, "doomed")
        with pytest.raises(StoreTimeout, match="may or may not"):
            await write_task
    finally:
        await server.execute_command("CLIENT", "UNPAUSE")
    assert await value_of(store, fragment, "a", "hits") == 0


async def test_the_deadline_bounds_every_call(
    config: SystemConfig, store: RedisStore, fragment: Fragment, server: Server
) -> None:
    hasty = RedisStore(replace(config, deadline_s=0.15))

    await open_soon(hasty)

    async def responds() -> bool:
        try:
            await hasty.scan(fragment, None, 10)
        except (StoreTimeout, StoreUnavailable):
            return False  # its deadline is short, and the machine may be busy
        return True

    await write_one(store, put(fragment, "a", hits=0, log=[]))
    await eventually(responds)
    await server.execute_command("CLIENT", "PAUSE", 20_000, "WRITE")
    try:
        call = apply(fragment, "a", OperatorCall("hits", Operator.INC, 1))
        results = await asyncio.gather(
            *(write_one(hasty, call) for _ in range(3)),
            hasty.scan(fragment, None, 10),
            hasty.read([Read(fragment, "a")]),
            return_exceptions=True,
        )
    finally:
        await server.execute_command("CLIENT", "UNPAUSE")
        await hasty.close()
    assert [type(result) for result in results] == [StoreTimeout] * 5
    assert await value_of(store, fragment, "a", "log") == []


async def test_a_cancelled_call_does_not_disturb_other_calls(
    store: RedisStore, fragment: Fragment
) -> None:
    await store.write([put(fragment, f"{n}", hits=n) for n in range(20)])
    tasks = [asyncio.create_task(value_of(store, fragment, f"{n}", "hits")) for n in range(20)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert results[1::2] == list(range(1, 20, 2))
    assert all(isinstance(result, asyncio.CancelledError) for result in results[::2])


async def test_an_unreachable_server_is_unavailable(config: SystemConfig) -> None:
    store = RedisStore(replace(config, url="redis://:secret@127.0.0.1:1/0", deadline_s=1.0))
    with pytest.raises(StoreUnavailable) as caught:
        await store.open()
    assert "secret" not in str(caught.value)
    await store.close()


async def test_a_wrong_password_is_refused_and_not_quoted(config: SystemConfig) -> None:
    url = with_options(config, username="nobody", password="hunter2")
    store = RedisStore(replace(config, url=url))
    with pytest.raises(StoreRefused) as caught:
        await store.open()
    assert "hunter2" not in str(caught.value)
    await store.close()


async def test_a_store_can_be_closed_twice_and_reopened(
    opened: StoreOpener, fragment: Fragment
) -> None:
    store = await opened()
    await write_one(store, put(fragment, "a", hits=3))
    await store.close()
    await store.close()
    await store.open()
    assert await value_of(store, fragment, "a", "hits") == 3


async def test_empty_batches_need_no_server(config: SystemConfig) -> None:
    store = RedisStore(config)
    assert await store.write([]) == []
    assert await store.read([]) == []
