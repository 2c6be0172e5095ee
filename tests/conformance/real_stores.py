"""The stores that the suite is run against, by kind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial

import asyncpg

from mediator.stores.mongo import MongoStore
from mediator.stores.mongo.layout import database_prefix
from mediator.stores.port import Store, StoreTimeout, StoreUnavailable, SystemConfig
from mediator.stores.postgres import PostgresStore
from mediator.stores.redis import RedisStore
from tests.faults.conditions import eventually

__all__ = ["STORES", "mongo_apart", "open_soon", "opened", "opened_apart"]

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


async def open_soon(store: Store) -> None:
    """Open a store whose deadline is short: a busy machine may need another attempt."""
    await eventually(partial(_opens, store))


async def _opens(store: Store) -> bool:
    try:
        await store.open()
    except (StoreTimeout, StoreUnavailable):
        return False
    return True


@asynccontextmanager
async def opened_apart(config: SystemConfig) -> AsyncIterator[PostgresStore]:
    """Open PostgreSQL's store in a namespace of the caller's own, which goes at the end."""
    store = PostgresStore(config)
    await store.open()
    yield store
    await store.close()
    admin = await asyncpg.connect(config.url)
    await admin.execute(f'DROP SCHEMA "{config.namespace}" CASCADE')
    await admin.close()


@asynccontextmanager
async def mongo_apart(config: SystemConfig) -> AsyncIterator[MongoStore]:
    """Open MongoDB's store in a namespace of the caller's own, which goes at the end."""
    store = MongoStore(config)
    await store.open()
    yield store
    client = store.link.session.client
    for name in await client.list_database_names():
        if name.startswith(database_prefix(config.namespace)):
            await client.drop_database(name)
    await store.close()
