"""Requirements on a Redis server, and its refusals."""

from __future__ import annotations

import pytest

from mediator.model.operators import Operator, OperatorCall
from mediator.stores.port import (
    Fragment,
    Read,
    StoreRefused,
    SystemConfig,
)
from mediator.stores.redis import RedisStore
from tests.conformance.redis.records import (
    Server,
    StoreOpener,
    apply,
    put,
    write_one,
)


async def test_a_full_server_refuses_a_write_and_applies_nothing(
    store: RedisStore, fragment: Fragment, server: Server
) -> None:
    await write_one(store, put(fragment, "a", hits=1, tags=["x"]))
    (before,) = await store.read([Read(fragment, "a")])
    await server.config_set("maxmemory", 1)
    try:
        call = apply(fragment, "a", OperatorCall("hits", Operator.INC, 1))
        with pytest.raises(StoreRefused, match="OOM"):
            await write_one(store, call)
    finally:
        await server.config_set("maxmemory", 0)
    assert await store.read([Read(fragment, "a")]) == [before]


@pytest.mark.parametrize("text", ["\ud800", "a\udfff"])
async def test_text_that_is_not_unicode_is_refused(
    store: RedisStore, fragment: Fragment, text: str
) -> None:
    for call in (
        put(fragment, "a", name=text),
        put(fragment, text),
        put(fragment, "a", notes={text: "x"}),
    ):
        with pytest.raises(StoreRefused):
            await write_one(store, call)
    with pytest.raises(StoreRefused):
        await store.read([Read(fragment, text)])


async def test_more_members_than_a_command_can_carry_are_refused(
    store: RedisStore, fragment: Fragment
) -> None:
    with pytest.raises(StoreRefused):
        await write_one(store, put(fragment, "a", log=[1] * 1_100_000))
    await store.ping()


async def test_facts_are_observed(store: RedisStore, server: Server) -> None:
    facts = await store.facts()
    persistent = (await server.config_get("appendonly"))["appendonly"] == "yes"
    fsync = (await server.config_get("appendfsync"))["appendfsync"]
    assert facts.durability_s == (
        {"always": 0.0, "everysec": 1.0}.get(fsync) if persistent else None
    )
    assert facts.server in {"redis", "valkey"}
    assert facts.version[0].isdigit()
    assert facts.replicas == 0


async def test_durability_is_configured(opened: StoreOpener, server: Server) -> None:
    before = (await server.config_get("appendfsync"))["appendfsync"]
    try:
        await opened(durability="full")
        assert (await server.config_get("appendfsync"))["appendfsync"] == "always"
    finally:
        await server.config_set("appendfsync", before)


async def test_a_server_that_evicts_records_is_refused(
    config: SystemConfig, server: Server
) -> None:
    store = RedisStore(config)
    await server.config_set("maxmemory-policy", "volatile-lru")
    await server.config_set("maxmemory", "10gb")
    try:
        with pytest.raises(StoreRefused, match="volatile-lru"):
            await store.open()
    finally:
        await server.config_set("maxmemory", 0)
        await server.config_set("maxmemory-policy", "noeviction")
        await store.close()
