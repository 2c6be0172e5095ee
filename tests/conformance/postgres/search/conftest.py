"""A store on PostgreSQL, a separate connection, and a class of a few thousand records."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from mediator.stores.port import (
    Fragment,
    SystemConfig,
)
from mediator.stores.postgres import PostgresStore
from tests.conformance.postgres.search.searches import FIELDS, NAMESPACE, RECORD_COUNT, table_of


@pytest.fixture(scope="module")
async def config(postgresql_config: SystemConfig) -> AsyncIterator[SystemConfig]:
    yield replace(postgresql_config, namespace=NAMESPACE, deadline_s=10.0, durability="second")
    admin = await asyncpg.connect(postgresql_config.url)
    await admin.execute(f'DROP SCHEMA IF EXISTS "{NAMESPACE}" CASCADE')
    await admin.close()


@pytest.fixture(scope="module")
async def store(config: SystemConfig) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(config)
    await store.open()
    yield store
    await store.close()


@pytest.fixture(scope="module")
async def admin(config: SystemConfig) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(config.url)
    yield connection
    await connection.close()


@pytest.fixture(scope="module")
async def many(store: PostgresStore, admin: Any) -> Fragment:
    """A class of a few thousand records, most of them without `rare`."""
    names = tuple(field.name for field in FIELDS)
    fields, indexes = {f.name: f for f in FIELDS}, (("kind", "at"), ("amount", "label"))
    fragment = Fragment("postgres", "d", "many", fields, {"main": names}, indexes=indexes)
    await store.prepare(fragment)
    await admin.execute(
        f"INSERT INTO {table_of(fragment)}"
        " (id, _creation_version, _nulls, n, rare, name, text, blob, plain, kind, amount,"
        " label, tags, marks, at, doc, counts)"
        " SELECT 'id' || lpad(i::text, 5, '0'), 1, CASE WHEN i % 10 = 0 THEN '{rare}'::text[]"
        " ELSE '{}' END, i, CASE WHEN i % 100 = 1 THEN i END, 'name' || lpad(i::text, 5, '0'),"
        " lpad(i::text, 5, '0') || repeat('x', 600), int4send(i::int), i % 50, i % 50, i % 50,"
        " lpad(i::text, 5, '0') || repeat('x', 600),"
        " ARRAY['tag' || i % 500, repeat('x', 600) || i], ARRAY[i % 1000, -i], to_timestamp(i),"
        " jsonb_build_object('city', CASE WHEN i % 2 = 0 THEN to_jsonb(i) ELSE"
        " to_jsonb('city' || lpad(i::text, 5, '0') || repeat('x', 600)) END,"
        " 'geo', jsonb_build_object('lat', i / 2.0), 'it''s % \\ :x $1', i),"
        " jsonb_build_object('eur', i)"
        f" FROM generate_series(1, {RECORD_COUNT}) AS i"
    )
    await admin.execute(f"ANALYZE {table_of(fragment)}")
    return fragment
