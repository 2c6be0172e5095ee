"""An isolated store on MongoDB, and a class."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from mediator.stores.mongo import MongoStore
from mediator.stores.port import (
    Fragment,
    SystemConfig,
)
from tests.conformance.mongo.outbox.relaying import FIELDS, GROUPS, NAMESPACE
from tests.conformance.real_stores import isolated_mongo


@pytest.fixture(scope="module")
async def store(mongodb_config: SystemConfig) -> AsyncIterator[MongoStore]:
    config = replace(mongodb_config, namespace=NAMESPACE, deadline_s=30.0)
    async with isolated_mongo(config) as store:
        yield store


@pytest.fixture(scope="module")
async def fragment(store: MongoStore) -> Fragment:
    fragment = Fragment("mongo", "d", f"c{uuid.uuid4().hex[:12]}", FIELDS, GROUPS)
    await store.prepare(fragment)
    return fragment


@pytest.fixture
def id_() -> str:
    return f"é{uuid.uuid4().hex}"
