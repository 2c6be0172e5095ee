"""Expired operations and ended transactions are deleted, however many are due at once."""

from __future__ import annotations

import asyncpg

from mediator.catalogue.tables import transactions
from mediator.operations.reaping import PAGE
from mediator.stores.port import RETENTION_S
from tests.process.operation.backups import Start
from tests.process.service import field_on, inc, unique

ROWS = 2 * PAGE + 10
LONG_AGO = f"now() - interval '{RETENTION_S + 60} s'"


async def test_all_due_rows_are_deleted_in_one_run(installation: Start) -> None:
    service = await installation()
    fields = {"hits": field_on("postgres", "integer")}
    database = await service.put_schema({"things": {"fields": fields}})
    await service.create(database, "things", "x", hits=1)
    recent = inc(database, "things", "x", operation=unique("op"), fingerprint="f")
    await service.mediator.data.write(recent)
    store = await asyncpg.connect(service.configs["postgres"].url)
    catalogue = await asyncpg.connect(service.catalogue_url)
    operations = f'"{service.configs["postgres"].namespace}"._operations'
    try:
        columns = "database, class, object, fingerprint, created, creation_version, versions"
        await store.execute(
            f"INSERT INTO {operations} (operation, at, {columns}, values, nulls)"
            f" SELECT 'old' || n, {LONG_AGO}, {columns}, values, nulls"
            f" FROM {operations}, generate_series(1, {ROWS}) AS n"
        )
        await catalogue.execute(
            f"INSERT INTO {transactions.fullname} (intent, database, records, state, leased_until)"
            f" SELECT 'old' || n, '', '[]', 'done', {LONG_AGO} FROM generate_series(1, {ROWS}) AS n"
        )
        await service.mediator.reap()
        assert await store.fetchval(f"SELECT count(*) FROM {operations}") == 1
        assert await catalogue.fetchval(f"SELECT count(*) FROM {transactions.fullname}") == 0
    finally:
        await store.close()
        await catalogue.close()
    assert (await service.mediator.data.write(recent)).replayed
    assert await service.values(database, "things", "x") == {"hits": 2}
