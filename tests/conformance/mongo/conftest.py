"""A store on MongoDB, and a class."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from mediator.stores.mongo import MongoStore
from mediator.stores.mongo.layout import database_prefix
from mediator.stores.port import (
    Fragment,
    SystemConfig,
)
from tests.conformance.mongo.records import FIELDS, NAMESPACE, opened


@pytest.fixture(scope="module")
def config(mongodb_config: SystemConfig) -> SystemConfig:
    return replace(mongodb_config, namespace=NAMESPACE, deadline_s=30.0)


@pytest.fixture(scope="module")
async def store(config: SystemConfig) -> AsyncIterator[MongoStore]:
    async with opened(config) as store:
        yield store
        client = store.link.session.client
        for name in await client.list_database_names():
            if name.startswith(database_prefix(NAMESPACE)):
                await client.drop_database(name)


@pytest.fixture
async def fragment(store: MongoStore) -> AsyncIterator[Fragment]:
    names = tuple(name for name in FIELDS if name != "s")
    groups = {"main": names, "side": ("s",)}
    fragment = Fragment("mongo", "d", f"c{uuid.uuid4().hex[:12]}", FIELDS, groups)
    await store.prepare(fragment)
    yield fragment
    await store.drop(fragment)
