"""Remembered operations and ended transactions are forgotten, however many are due at once."""

from __future__ import annotations

import asyncpg

from mediator.catalogue.tables import transactions
from mediator.operations.reaping import PAGE
from mediator.stores.port import RETENTION_S
from tests.process.operation.backups import Start
from tests.process.service import field_on, inc, unique

MANY = 2 * PAGE + 10
LONG_AGO = f"now() - interval '{RETENTION_S + 60} s'"


async def test_all_that_is_due_is_forgotten_in_one_run(installation: Start) -> None:
    own = await installation()
    fields = {"hits": field_on("postgres", "integer")}
    database = await own.put_schema({"things": {"fields": fields}})
    await own.create(database, "things", "x", hits=1)
    recent = inc(database, "things", "x", operation=unique("op"), fingerprint="f")
    await own.mediator.data.write(recent)
    store = await asyncpg.connect(own.configs["postgres"].url)
    catalogue = await asyncpg.connect(own.catalogue_url)
    operations = f'"{own.configs["postgres"].namespace}"._operations'
    try:
        columns = "database, class, object, fingerprint, created, creation_version, versions"
        await store.execute(
            f"INSERT INTO {operations} (operation, at, {columns}, values, nulls)"
            f" SELECT 'old' || n, {LONG_AGO}, {columns}, values, nulls"
            f" FROM {operations}, generate_series(1, {MANY}) AS n"
        )
        await catalogue.execute(
            f"INSERT INTO {transactions.fullname} (intent, database, records, state, leased_until)"
            f" SELECT 'old' || n, '', '[]', 'done', {LONG_AGO} FROM generate_series(1, {MANY}) AS n"
        )
        await own.mediator.reap()
        assert await store.fetchval(f"SELECT count(*) FROM {operations}") == 1
        assert await catalogue.fetchval(f"SELECT count(*) FROM {transactions.fullname}") == 0
    finally:
        await store.close()
        await catalogue.close()
    assert (await own.mediator.data.write(recent)).replayed
    assert await own.values(database, "things", "x") == {"hits": 2}
