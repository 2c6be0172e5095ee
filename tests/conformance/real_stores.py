"""The stores that the suite is run against, by kind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from mediator.stores.mongo import MongoStore
from mediator.stores.port import Store, SystemConfig
from mediator.stores.postgres import PostgresStore
from mediator.stores.redis import RedisStore

__all__ = ["STORES", "opened"]

STORES: Mapping[str, Callable[[SystemConfig], Store]] = {
    "redis": RedisStore,
    "postgresql": PostgresStore,
    "mongodb": MongoStore,
}


@asynccontextmanager
async def opened(config: SystemConfig) -> AsyncIterator[Store]:
    """Open the store of a configuration, and close it at the end."""
    store = STORES[config.kind](config)
    await store.open()
    try:
        yield store
    finally:
        await store.close()
