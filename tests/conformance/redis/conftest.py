"""A store on Redis with a class of its own, and further stores that are closed at the end."""

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
    Opened,
    Server,
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
    opened = RedisStore(config)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def fragment(store: RedisStore) -> AsyncIterator[Fragment]:
    created = Fragment("redis", "db", f"c{uuid4().hex[:8]}", FIELDS, GROUPS)
    await store.prepare(created)
    yield created
    await store.drop(created)


@pytest.fixture
async def opened(config: SystemConfig) -> AsyncIterator[Opened]:
    """Opens further stores, and closes them in the end."""
    stores: list[RedisStore] = []

    async def open_(**changes: Any) -> RedisStore:
        stores.append(RedisStore(replace(config, **changes)))
        await stores[-1].open()
        return stores[-1]

    yield open_
    for one in stores:
        await one.close()
