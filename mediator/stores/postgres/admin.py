"""Administration: tables and indexes, changed by one replica at a time, and server facts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg
import sqlalchemy as sa
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable

from mediator.schema.unique import constraint_name
from mediator.stores.port import Fragment, ServerFacts, StoreRefused
from mediator.stores.postgres.connection import transaction
from mediator.stores.postgres.layout import (
    INDEXED_CHARACTERS,
    NARROW,
    TRUNCATED,
    NamespaceTables,
    RecordTable,
    claim_index,
    column_name,
    retired_name,
    table_name,
)
from mediator.stores.postgres.sql import DIALECT, qualified, quoted

__all__ = ["built", "drop_class", "erase", "observe", "prepare_class", "prepare_namespace"]

_NAMESPACE_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('portolan ' || $1, 0))"
_LONG_TIMEOUT: Final = "SET LOCAL statement_timeout = '300s'"
"""Schema changes wait for each other; the session's timeout is for single calls."""

_BUILD_TIMEOUT: Final = "SET statement_timeout = '3600s'"
_RESET_TIMEOUT: Final = "RESET statement_timeout"
_LOCK_TABLE: Final = "SELECT pg_try_advisory_lock(hashtextextended('portolan table ' || $1, 0))"
_UNLOCK_TABLE: Final = "SELECT pg_advisory_unlock(hashtextextended('portolan table ' || $1, 0))"
_RETRY_S: Final = 0.1
"""Interval between attempts to lock a table, in seconds."""

_COLUMNS: Final = """
SELECT attname, format_type(atttypid, NULL) FROM pg_attribute
WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped
"""
_INDEXES: Final = """
SELECT c.relname, indisvalid FROM pg_index JOIN pg_class c ON c.oid = indexrelid
WHERE indrelid = $1::regclass AND NOT indisprimary
"""
_PROGRESS: Final = """
SELECT blocks_done AS done, blocks_total AS blocks, phase LIKE 'index validation%' AS is_checked
FROM pg_stat_progress_create_index WHERE relid = to_regclass($1)
"""
_TRUNCATE: Final = """
CREATE FUNCTION {name}({type}[]) RETURNS {type}[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT array_agg({head}) FROM unnest($1) AS element $$
"""
_HEAD_OF: Final = {
    "text": f"left(element, {INDEXED_CHARACTERS})",
    "bytea": f"substr(element, 1, {INDEXED_CHARACTERS})",
}
_PURGE: Final = """
WITH span AS (SELECT id, _nulls FROM {table} WHERE id > $1 ORDER BY id LIMIT $2),
purged AS (
    UPDATE {table} AS own
    SET _nulls = ARRAY(SELECT name FROM unnest(own._nulls) AS name WHERE name <> ALL ($3))
    FROM span WHERE own.id = span.id AND span._nulls && $3::text[]
)
SELECT max(id), count(*) FROM span
"""
_OLD_FIELDS: Final = 'SELECT fields FROM {classes} WHERE "table" = $1'
_NEW_FIELDS: Final = """
INSERT INTO {classes} ("table", fields) VALUES ($1, $2)
ON CONFLICT ("table") DO UPDATE SET fields = excluded.fields
"""


def _sql(element: Any) -> str:
    return str(element.compile(dialect=DIALECT))


async def prepare_namespace(connection: Any, namespace_tables: NamespaceTables) -> None:
    """Create the schema with its tables and functions where they are absent."""
    namespace = str(namespace_tables.outbox.schema)
    async with transaction(connection):
        await connection.execute(_LONG_TIMEOUT)
        await connection.fetch(_NAMESPACE_LOCK, namespace)
        existing = await connection.fetchval("SELECT to_regnamespace($1)", quoted(namespace))
        if existing is None:
            await connection.execute(f"CREATE SCHEMA {quoted(namespace)}")
        for table in namespace_tables:
            if await connection.fetchval("SELECT to_regclass($1)", qualified(table)) is None:
                await _create(connection, table)
        await _add_functions(connection, namespace)


async def _add_functions(connection: Any, namespace: str) -> None:
    """Create the functions that element indexes use: an index expression takes no subquery."""
    name = quoted(namespace, TRUNCATED)
    for type_, head in _HEAD_OF.items():
        if await connection.fetchval("SELECT to_regprocedure($1)", f"{name}({type_}[])") is None:
            statement = _TRUNCATE.format(name=name, type=type_, head=head)
            await connection.execute(statement)


async def _create(connection: Any, table: sa.Table) -> None:
    await connection.execute(_sql(CreateTable(table)))
    for index in table.indexes:
        await connection.execute(_sql(CreateIndex(index)))


async def prepare_class(
    connection: Any,
    namespace_tables: NamespaceTables,
    records: RecordTable,
    previous: Fragment | None,
    *,
    add_only: bool = False,
) -> None:
    """Migrate the table of a class to its fragment; existing rows keep their data.

    `add_only`: only add columns and indexes, without indexes of unique constraints.
    """
    table = records.table
    async with _table_lock(connection, qualified(table)):
        async with transaction(connection):
            await connection.execute(_LONG_TIMEOUT)
            await connection.fetch(_NAMESPACE_LOCK, str(table.schema))
            if await connection.fetchval("SELECT to_regclass($1)", qualified(table)) is None:
                await _create(connection, table)
            else:
                await _retire(connection, namespace_tables, records, previous)
                await _add_columns(connection, records)
                if not add_only:
                    await _match_indexes(connection, records, previous)
            remember = _NEW_FIELDS.format(classes=qualified(namespace_tables.classes))
            await connection.execute(remember, table.name, list(records.columns))
        await _build_indexes(connection, records)


@asynccontextmanager
async def _table_lock(connection: Any, table: str) -> AsyncIterator[None]:
    """Exclude all other replicas from changing a table.

    Waiting for a lock holds a snapshot, and CREATE INDEX CONCURRENTLY waits for all snapshots: so
    the lock is polled.
    """
    while True:
        if await connection.fetchval(_LOCK_TABLE, table):
            break
        await asyncio.sleep(_RETRY_S)
    async with _executing_at_exit(connection, _UNLOCK_TABLE, table):
        yield


@asynccontextmanager
async def _executing_at_exit(
    connection: Any, statement: str, *arguments: str
) -> AsyncIterator[None]:
    """Execute a statement at exit, unless the call was cut off: the pool closes that connection."""
    try:
        yield
    except (asyncpg.PostgresError, asyncpg.InterfaceError):
        await connection.fetch(statement, *arguments)
        raise
    await connection.fetch(statement, *arguments)


async def _build_indexes(connection: Any, records: RecordTable) -> None:
    """Build the missing indexes while the table is read and written."""
    table = records.table
    index_rows = await connection.fetch(_INDEXES, qualified(table))
    valid = {name for name, is_valid in index_rows if is_valid}
    missing = {
        str(index.name): index
        for index in table.indexes
        if not valid & _names(index) and not index.unique  # created with their constraint
    }
    if not missing:
        return
    await connection.execute(_BUILD_TIMEOUT)
    async with _executing_at_exit(connection, _RESET_TIMEOUT):
        for name in sorted(missing):
            # An interrupted build leaves an invalid index.
            unfinished = quoted(str(table.schema), name)
            await connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {unfinished}")
            await connection.execute(_concurrently(missing[name]))


def _names(index: sa.Index) -> set[str]:
    """Return the names of an index and of its narrow equivalent."""
    return {str(index.name), str(index.info.get(NARROW, index.name))}


async def built(connection: Any, records: RecordTable) -> float | None:
    """Return the progress of an index build: the table is read twice, to build and to validate."""
    row = await connection.fetchrow(_PROGRESS, qualified(records.table))
    if row is None:
        return None
    fraction = row["done"] / row["blocks"] if row["blocks"] else 0.0
    return float(fraction + row["is_checked"]) / 2


def _concurrently(index: sa.Index) -> str:
    return _sql(CreateIndex(index)).replace("INDEX ", "INDEX CONCURRENTLY ", 1)


async def _retire(
    connection: Any,
    namespace_tables: NamespaceTables,
    records: RecordTable,
    previous: Fragment | None,
) -> None:
    """Rename the columns of fields that left the schema and now return as new fields.

    In existing rows a new field is missing, so it must not find the values of an earlier field.
    A field that was prepared last is not new: another replica has prepared it.
    """
    if previous is None:
        return
    query = _OLD_FIELDS.format(classes=qualified(namespace_tables.classes))
    prepared_fields = {
        *previous.fields,
        *(await connection.fetchval(query, records.table.name) or ()),
    }
    present_columns = await _columns(connection, records.table)
    for name in records.fragment.fields.keys() - prepared_fields:
        if column_name(name) in present_columns:
            await _rename_column(connection, records, name)


async def _rename_column(connection: Any, records: RecordTable, name: str) -> None:
    table, old = qualified(records.table), quoted(column_name(name))
    retired = quoted(retired_name(name, records.fragment.schema_version))
    await connection.execute(f"ALTER TABLE {table} RENAME COLUMN {old} TO {retired}")
    await connection.execute(
        f"UPDATE {table} SET _nulls = array_remove(_nulls, $1) WHERE $1 = ANY (_nulls)",  # noqa: S608 - quoted identifiers
        name,
    )


async def _columns(connection: Any, table: sa.Table) -> dict[str, str]:
    return dict(await connection.fetch(_COLUMNS, qualified(table)))


async def _add_columns(connection: Any, records: RecordTable) -> None:
    table = records.table
    present_columns = await _columns(connection, table)
    _check_types(records, present_columns)
    for column in table.columns:
        if column.name not in present_columns:
            definition = _sql(CreateColumn(column))
            await connection.execute(f"ALTER TABLE {qualified(table)} ADD COLUMN {definition}")


def _check_types(records: RecordTable, present_types: dict[str, str]) -> None:
    """Refuse a column of another type: its values would be read wrongly."""
    for name, column in records.columns.items():
        expected = column.type.compile(dialect=DIALECT).split(" COLLATE")[0].lower()
        actual = present_types.get(column.name)
        if actual is not None and actual != expected:
            raise StoreRefused(
                f"{records.fragment.system}: the column of {name} holds {actual}, not {expected}"
            )


async def _match_indexes(connection: Any, records: RecordTable, previous: Fragment | None) -> None:
    """Drop obsolete indexes, and create those of unique constraints."""
    table = records.table
    existing = {name for name, _ in await connection.fetch(_INDEXES, qualified(table))}
    indexes = {str(index.name): index for index in table.indexes}
    # A unique constraint that is being removed is in force until the catalogue is changed.
    retained = {claim_index(table.name, constraint) for constraint in _constraints(previous)}
    for index in table.indexes:
        if index.name not in existing:
            retained |= _names(index)
    for name in sorted(existing - indexes.keys() - retained):
        if "~" in name:  # an administrator's index has another name
            await connection.execute(f"DROP INDEX {quoted(str(table.schema), name)}")
    for constraint in records.claims.keys() - _constraints(previous):
        await connection.execute(_clear_statement(records, constraint))
    for name in sorted(indexes.keys() - existing):
        if indexes[name].unique:
            await connection.execute(_sql(CreateIndex(indexes[name])))


def _constraints(previous: Fragment | None) -> set[str]:
    return set(map(constraint_name, previous.unique)) if previous is not None else set()


def _clear_statement(records: RecordTable, constraint: str) -> str:
    """Return the removal of claims of objects that were deleted while the constraint was absent."""
    column = quoted(records.claims[constraint].name)
    return (
        f"UPDATE {qualified(records.table)} SET {column} = NULL"  # noqa: S608 - quoted identifiers
        f" WHERE {column} IS NOT NULL AND _deleted IS NOT NULL AND _intent IS NULL"
    )


async def drop_class(
    connection: Any, namespace_tables: NamespaceTables, fragment: Fragment
) -> None:
    """Drop the table of a class and its remembered operations; its changes stay for the feed."""
    operations, classes = namespace_tables.operations, namespace_tables.classes
    name, schema = table_name(fragment.database, fragment.stored_as), str(operations.schema)
    lock = _table_lock(connection, quoted(schema, name))
    async with lock, transaction(connection):
        await connection.execute(_LONG_TIMEOUT)
        await connection.fetch(_NAMESPACE_LOCK, schema)
        await connection.execute(f"DROP TABLE IF EXISTS {quoted(schema, name)}")
        await connection.execute(f'DELETE FROM {qualified(classes)} WHERE "table" = $1', name)  # noqa: S608 - quoted identifiers
        await connection.execute(
            f"DELETE FROM {qualified(operations)} WHERE database = $1 AND class = $2",  # noqa: S608 - quoted identifiers
            fragment.database,
            fragment.stored_as,
        )


async def erase(
    connection: Any, records: RecordTable, names: Sequence[str], after: str | None, limit: int
) -> str | None:
    """Remove fields from `_nulls` of up to `limit` rows, and finally their columns.

    Returns the id of the last row; None: all is removed. Leftover names would fill index entries.
    """
    table = records.table
    if await connection.fetchval("SELECT to_regclass($1)", qualified(table)) is not None:
        purge = _PURGE.format(table=qualified(table))
        last, number = await connection.fetchrow(purge, after or "", limit, list(names))
        if number == limit:
            return str(last)
    drops = ", ".join(f"DROP COLUMN IF EXISTS {quoted(column_name(name))}" for name in names)
    async with _table_lock(connection, qualified(table)), transaction(connection):
        await connection.fetch(_NAMESPACE_LOCK, str(table.schema))
        await connection.execute(f"ALTER TABLE IF EXISTS {qualified(table)} {drops}")
    return None


_SETTINGS: Final = ("server_version", "fsync", "synchronous_commit", "full_page_writes")
_QUERY: Final = """
SELECT name, current_setting(name) FROM unnest($1::text[]) AS name
UNION ALL SELECT 'wal_writer_delay_ms', setting FROM pg_settings WHERE name = 'wal_writer_delay'
"""
_REPLICAS: Final = "SELECT count(*) FROM pg_stat_replication"
_MAY_SEE: Final = "SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')"


async def observe(connection: Any) -> ServerFacts:
    """Query over a connection that the store opened, so that its session settings count."""
    details = dict(await connection.fetch(_QUERY, list(_SETTINGS)))
    return ServerFacts(
        server="PostgreSQL",
        version=details["server_version"],
        durability_s=_durability_s(details),
        replicas=await _replicas(connection),
        details=details,
    )


def _durability_s(details: dict[str, str]) -> float | None:
    """Return how many seconds of acknowledged writes a crash can lose (PostgreSQL manual, 28.4)."""
    if details["fsync"] != "on":
        return None
    if details["synchronous_commit"] != "off":
        return 0.0
    return 3 * float(details["wal_writer_delay_ms"]) / 1000


async def _replicas(connection: Any) -> int | None:
    # Without the role the rows are almost empty, or hidden: do not count them.
    try:
        if not await connection.fetchval(_MAY_SEE):
            return None
        return int(await connection.fetchval(_REPLICAS))
    except asyncpg.InsufficientPrivilegeError:
        return None
