"""A store on PostgreSQL, a separate connection, and a class."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.stores.port import (
    Fragment,
    SystemConfig,
)
from mediator.stores.postgres import PostgresStore
from tests.conformance.postgres.records import NAMESPACE, fragment_of


@pytest.fixture(scope="session")
async def config(postgresql_config: SystemConfig) -> AsyncIterator[SystemConfig]:
    yield replace(postgresql_config, namespace=NAMESPACE, deadline_s=10.0, durability="second")
    admin = await asyncpg.connect(postgresql_config.url)
    await admin.execute(f'DROP SCHEMA IF EXISTS "{NAMESPACE}" CASCADE')
    await admin.close()


@pytest.fixture(scope="session")
async def store(config: SystemConfig) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(config)
    await store.open()
    yield store
    await store.close()


@pytest.fixture(scope="session")
async def admin(config: SystemConfig) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(config.url)
    yield connection
    await connection.close()


@pytest.fixture
async def subject(store: PostgresStore) -> AsyncIterator[Fragment]:
    fragment = fragment_of(Field("n", FieldType.INTEGER), Field("s", FieldType.STRING, group="s"))
    await store.prepare(fragment)
    yield fragment
    await store.drop(fragment)
