"""Copies of records of other stores: complete rows that newer ones replace.

One statement for each record, many of them in one round trip and one transaction. The condition of
the upsert is evaluated on the locked row, so that of two concurrent copies the newer stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from mediator.stores.port import ReadRecords, Record, are_as_new
from mediator.stores.postgres.codec import encode_value
from mediator.stores.postgres.connection import Pool, transaction
from mediator.stores.postgres.layout import NULLS, RecordTable
from mediator.stores.postgres.sql import Statement, parameter

__all__ = [
    "absorb",
    "absorb_statement",
    "forget",
    "forget_statement",
    "replace_copies",
    "replace_statement",
]


async def absorb(
    pool: Pool,
    read: ReadRecords,
    table: RecordTable,
    statement: Statement,
    records: Sequence[Record],
) -> list[bool]:
    """Replace copies by newer records; see `port.Mirror`."""
    # Rows are locked in one order, so that two transactions cannot wait for each other.
    rows = [_row(table, record) for record in sorted(records, key=lambda r: r.id)]
    replaced_ids = {row[0] for row in await _send(pool, statement, rows)}
    unreplaced = [at for at, record in enumerate(records) if record.id not in replaced_ids]
    return await are_as_new(table.fragment, records, unreplaced, read)


async def replace_copies(
    pool: Pool,
    table: RecordTable,
    statement: Statement,
    copies: Sequence[Record],
    records: Sequence[Record],
) -> int:
    """Replace copies that are unchanged since they were read; see `port.Mirror`."""
    pairs = sorted(zip(copies, records, strict=True), key=lambda pair: pair[1].id)
    rows = [{**_row(table, record), **_copy_versions(table, copy)} for copy, record in pairs]
    return len(await _send(pool, statement, rows))


async def forget(pool: Pool, statement: Statement, tombstones: Sequence[tuple[str, int]]) -> None:
    """Replace copies by tombstones; see `port.Mirror`."""
    rows = [{"id": id_, "creation_version": version} for id_, version in sorted(tombstones)]
    await _send(pool, statement, rows)


async def _send(pool: Pool, statement: Statement, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    arguments = [statement.arguments(row) for row in rows]

    async def run(connection: Any) -> list[Any]:
        async with transaction(connection):
            replies: list[Any] = await connection.fetchmany(statement.text, arguments)
            return replies

    return await pool.use(run) if arguments else []


def absorb_statement(records: RecordTable) -> Statement:
    table, row = records.table, _parameters(records)
    statement = insert(table).values(row)
    new = statement.excluded
    conditions = [table.c[v.name] <= new[v.name] for v in records.versions.values()]
    conditions += [table.c["_creation_version"] == new["_creation_version"], records.live]
    older = sa.or_(table.c["_creation_version"] < new["_creation_version"], sa.and_(*conditions))
    changes = {**{name: new[name] for name in row if name != "id"}, "_deleted": sa.null()}
    upsert = statement.on_conflict_do_update(index_elements=["id"], set_=changes, where=older)
    return Statement(upsert.returning(table.c["id"]))


def replace_statement(records: RecordTable) -> Statement:
    """Build the update of one copy that still has the versions that were read."""
    table, row = records.table, _parameters(records)
    arguments = {"_creation_version": "found_creation_version"} | {
        column.name: f"found_{group}" for group, column in records.versions.items()
    }
    conditions = [
        table.c[name] == parameter(argument, sa.BigInteger())
        for name, argument in arguments.items()
    ]
    update = sa.update(table).where(table.c["id"] == row.pop("id"), records.live, *conditions)
    return Statement(update.values(row).returning(table.c["id"]))


def _parameters(records: RecordTable) -> dict[str, Any]:
    """Return the parameters of a row, by column."""
    return {
        "id": parameter("id", sa.Text()),
        "_creation_version": parameter("creation_version", sa.BigInteger()),
        "_nulls": parameter("nulls", NULLS),
        **{
            column.name: parameter(f"g_{group}", sa.BigInteger())
            for group, column in records.versions.items()
        },
        **{
            column.name: parameter(f"v_{name}", records.codecs[name].type)
            for name, column in records.columns.items()
        },
    }


def forget_statement(records: RecordTable) -> Statement:
    """Build the upsert of one tombstone; its creation version is the highest deleted one."""
    table = records.table
    null_fields = {column.name: sa.null() for column in records.columns.values()}
    tombstone = {
        "_creation_version": parameter("creation_version", sa.BigInteger()),
        "_deleted": sa.func.clock_timestamp(),
        "_nulls": sa.cast(sa.literal_column("'{}'"), NULLS),
    }
    statement = insert(table).values({"id": parameter("id", sa.Text()), **tombstone})
    changes = {**null_fields, **{name: statement.excluded[name] for name in tombstone}}
    return Statement(
        statement.on_conflict_do_update(
            index_elements=["id"],
            set_=changes,
            where=table.c["_creation_version"] <= statement.excluded["_creation_version"],
        ).returning(table.c["id"])
    )


def _row(table: RecordTable, record: Record) -> dict[str, Any]:
    values = record.values
    return {
        "id": record.id,
        "creation_version": record.creation_version,
        "nulls": [name for name, value in values.items() if value is None],
        **{f"g_{group}": record.versions.get(group, 0) for group in table.versions},
        **{
            f"v_{name}": encode_value(codec, values.get(name))
            for name, codec in table.codecs.items()
        },
    }


def _copy_versions(table: RecordTable, copy: Record) -> dict[str, int]:
    versions = {f"found_{group}": copy.versions.get(group, 0) for group in table.versions}
    return {"found_creation_version": copy.creation_version, **versions}
