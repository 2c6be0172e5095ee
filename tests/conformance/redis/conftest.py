"""A store on Redis, a class, and an opener of other stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
import redis.asyncio

from mediator.stores.port import (
    Fragment,
    SystemConfig,
)
from mediator.stores.redis import RedisStore
from tests.conformance.redis.records import (
    FIELDS,
    GROUPS,
    Server,
    StoreOpener,
)


@pytest.fixture(scope="session")
def config(redis_config: SystemConfig) -> SystemConfig:
    return replace(redis_config, namespace=f"test_{uuid4().hex[:8]}", deadline_s=20.0)


@pytest.fixture(scope="session")
async def server(config: SystemConfig) -> AsyncIterator[Server]:
    async with redis.asyncio.Redis.from_url(config.url, protocol=2) as client:
        yield client
        keys = [key async for key in client.scan_iter(f"{{{config.namespace}:*", count=1000)]
        if keys:
            await client.delete(*keys)


@pytest.fixture(scope="session")
async def store(config: SystemConfig, server: Server) -> AsyncIterator[RedisStore]:
    store = RedisStore(config)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def fragment(store: RedisStore) -> AsyncIterator[Fragment]:
    fragment = Fragment("redis", "db", f"c{uuid4().hex[:8]}", FIELDS, GROUPS)
    await store.prepare(fragment)
    yield fragment
    await store.drop(fragment)


@pytest.fixture
async def opened(config: SystemConfig) -> AsyncIterator[StoreOpener]:
    """Opens other stores, and closes them at the end."""
    stores: list[RedisStore] = []

    async def open_(**changes: Any) -> RedisStore:
        stores.append(RedisStore(replace(config, **changes)))
        await stores[-1].open()
        return stores[-1]

    yield open_
    for store in stores:
        await store.close()
