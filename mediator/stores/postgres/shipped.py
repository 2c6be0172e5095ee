"""Tables to which relations are shipped in batches, and a statement over them.

Each batch is one transaction that records the batch number: a batch that is shipped a second time,
as after a crash, replaces its rows. A session advisory lock excludes other processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final

import asyncpg

from mediator.stores.port import StoreError, StoreRefused
from mediator.stores.postgres.connection import transaction
from mediator.stores.postgres.errors import FAILURES, as_store_error
from mediator.stores.postgres.sql import quoted

__all__ = ["Batch", "ShippedRelations"]

_NAME: Final = "the database of continuous queries"
_DEADLINE_S: Final = 60.0
_SETTINGS: Final = {
    "application_name": "portolan",
    "timezone": "UTC",
    "jit": "off",
    # The tuples of a slide follow no statistics: the last ANALYZE has not seen them.
    # All joins are equi-joins of many rows with many, so hash joins suit them.
    "enable_nestloop": "off",
    "enable_mergejoin": "off",
    "idle_in_transaction_session_timeout": "300s",
    "synchronous_commit": "on",
}
_LOCK: Final = "SELECT pg_try_advisory_lock(hashtextextended('portolan continuous ' || $1, 0))"
_PROGRESS: Final = "_progress"
_PROGRESS_COLUMNS: Final = {"task": "text PRIMARY KEY", "batch": "bigint NOT NULL"}
_LAST: Final = "SELECT batch FROM {} WHERE task = $1"
_FIRST: Final = "INSERT INTO {} (task, batch) VALUES ($1, $2)"
_NEXT: Final = "UPDATE {} SET batch = $2 WHERE task = $1"


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows shipped for a statement, and its arguments.

    Attributes:
        number: One more than the number of the batch before.
        rows: Rows as CSV, by table.
        replaced: A condition, with the parameters `bounds`, on obsolete tuples and those of this
            batch.
    """

    number: int
    rows: Mapping[str, bytes]
    replaced: str
    bounds: tuple[int, ...]
    statement: str
    arguments: tuple[Any, ...]


class ShippedRelations:
    """Tables in a separate schema, for one process at a time.

    Args:
        tables: Types of columns, by table and column.
    """

    def __init__(self, url: str, schema: str, tables: Mapping[str, Mapping[str, str]]) -> None:
        self._url, self._schema, self._tables = url, schema, tables
        self._connection: Any = None

    async def open(self) -> None:
        """Connect, and create missing tables.

        Raises:
            StoreError: The database refuses, does not answer, or another process has the schema.
        """
        try:
            self._connection = await asyncpg.connect(
                self._url,
                timeout=_DEADLINE_S,
                command_timeout=_DEADLINE_S,
                server_settings=_SETTINGS,
            )
            if not await self._connection.fetchval(_LOCK, self._schema):
                raise StoreRefused(f"{_NAME}: another process uses the schema {self._schema}")
            await self._create()
        except (StoreError, *FAILURES) as error:
            await self.close()
            raise as_store_error(_NAME, error) from error

    async def close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()

    async def drop(self) -> None:
        """Drop the schema with all tables.

        Raises:
            StoreError: The database refuses or does not answer.
        """
        try:
            await self._connection.execute(f"DROP SCHEMA {quoted(self._schema)} CASCADE")
        except FAILURES as error:
            raise as_store_error(_NAME, error) from error

    async def execute(self, task: str, batch: Batch) -> list[Any]:
        """Ship a batch, and return the rows of its statement; batches are numbered by `task`.

        Raises:
            StoreError: The database refuses or does not answer, or has executed later batches.
        """
        try:
            async with transaction(self._connection):
                await self._advance(task, batch.number)
                for table, rows in batch.rows.items():
                    await self._replace(table, rows, batch)
                result = await self._connection.fetch(batch.statement, *batch.arguments)
            return list(result)
        except FAILURES as error:
            raise as_store_error(_NAME, error) from error

    async def _create(self) -> None:
        async with transaction(self._connection):
            await self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(self._schema)}")
            tables = {_PROGRESS: _PROGRESS_COLUMNS, **self._tables}
            for table, columns in tables.items():
                types = ", ".join(f"{quoted(name)} {type_}" for name, type_ in columns.items())
                name = quoted(self._schema, table)
                await self._connection.execute(f"CREATE TABLE IF NOT EXISTS {name} ({types})")

    async def _advance(self, task: str, number: int) -> None:
        """Record the batch number, which must be the next one, or the last one repeated."""
        progress = quoted(self._schema, _PROGRESS)
        last = await self._connection.fetchval(_LAST.format(progress), task)
        if last is not None and not last <= number <= last + 1:
            await self._connection.execute("ROLLBACK")
            raise StoreRefused(f"{_NAME}: batch {last} was the last one, and {number} is not next")
        statement = _NEXT if last is not None else _FIRST
        await self._connection.execute(statement.format(progress), task, number)

    async def _replace(self, table: str, rows: bytes, batch: Batch) -> None:
        name = quoted(self._schema, table)
        statement = f"DELETE FROM {name} WHERE {batch.replaced}"  # noqa: S608 - quoted identifiers
        await self._connection.execute(statement, *batch.bounds)
        await self._connection.copy_to_table(
            table,
            schema_name=self._schema,
            columns=list(self._tables[table]),
            source=BytesIO(rows),
            format="csv",
        )
