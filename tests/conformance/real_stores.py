"""The stores that the suite tests, by kind."""

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

__all__ = ["STORES", "isolated_mongo", "isolated_postgres", "open_soon", "opened"]

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
    await eventually(partial(_try_open, store))


async def _try_open(store: Store) -> bool:
    try:
        await store.open()
    except (StoreTimeout, StoreUnavailable):
        return False
    return True


@asynccontextmanager
async def isolated_postgres(config: SystemConfig) -> AsyncIterator[PostgresStore]:
    """Open PostgreSQL's store in a namespace that is dropped at the end."""
    store = PostgresStore(config)
    await store.open()
    yield store
    await store.close()
    admin = await asyncpg.connect(config.url)
    await admin.execute(f'DROP SCHEMA "{config.namespace}" CASCADE')
    await admin.close()


@asynccontextmanager
async def isolated_mongo(config: SystemConfig) -> AsyncIterator[MongoStore]:
    """Open MongoDB's store in a namespace that is dropped at the end."""
    store = MongoStore(config)
    await store.open()
    yield store
    client = store.link.session.client
    for name in await client.list_database_names():
        if name.startswith(database_prefix(config.namespace)):
            await client.drop_database(name)
    await store.close()
