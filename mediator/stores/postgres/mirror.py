"""Copies of records of other stores: replaced when they are newer, as whole rows.

One statement for each record, many of them in one round trip and one transaction. The condition of
the upsert is evaluated on the locked row, so that of two copies at the same time the newer stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from mediator.stores.port import Fragment, Record, is_surpassed
from mediator.stores.postgres.connection import Pool, transaction
from mediator.stores.postgres.layout import NULLS, RecordTable
from mediator.stores.postgres.sql import Statement, parameter
from mediator.stores.postgres.statements import Statements
from mediator.stores.postgres.write.shape import encoded

__all__ = ["Copies"]


class Copies:
    """The copies of one namespace; see `port.Mirror`."""

    def __init__(self, statements: Statements, pool: Pool) -> None:
        self._statements, self._pool = statements, pool
        self._absorbing = lru_cache(maxsize=256)(_absorb_statement)
        self._forgetting = lru_cache(maxsize=256)(_forget_statement)

    async def absorb(
        self, fragment: Fragment, records: Sequence[Record], *, force: bool
    ) -> list[bool]:
        """Replace copies by newer records."""
        table = self._statements.records(fragment)
        statement = self._absorbing(table, force)
        # Rows are locked in one order, so that two transactions cannot wait for each other.
        rows = [_row(table, record) for record in sorted(records, key=lambda r: r.id)]
        done = {row[0] for row in await self._send(statement, rows)}
        held = await self._held(fragment, [r.id for r in records if r.id not in done])
        return [r.id in done or is_surpassed(r, held.get(r.id)) for r in records]

    async def forget(self, fragment: Fragment, tombstones: Sequence[tuple[str, int]]) -> None:
        """Leave tombstones in the place of copies."""
        statement = self._forgetting(self._statements.records(fragment))
        await self._send(
            statement,
            [
                {"id": id_, "creation_version": creation_version}
                for id_, creation_version in sorted(tombstones)
            ],
        )

    async def _send(self, statement: Statement, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
        given = [statement.arguments(row) for row in rows]

        async def run(connection: Any) -> list[Any]:
            async with transaction(connection):
                replies: list[Any] = await connection.fetchmany(statement.text, given)
                return replies

        return await self._pool.use(run) if given else []

    async def _held(self, fragment: Fragment, ids: Sequence[str]) -> Mapping[str, Record]:
        if not ids:
            return {}
        statement, read = (
            self._statements.read(fragment, (), True),
            self._statements.reader(fragment, ()),
        )
        arguments = statement.arguments({"ids": ids})
        rows = await self._pool.use(lambda c: c.fetch(statement.text, *arguments))
        return {row[0]: read(row) for row in rows}


def _absorb_statement(records: RecordTable, force: bool) -> Statement:
    """Build the upsert of one copy."""
    table = records.table
    row: dict[str, Any] = {
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
    statement = insert(table).values(row)
    new = statement.excluded
    same = [table.c[v.name] <= new[v.name] for v in records.versions.values()]
    same += [table.c["_creation_version"] == new["_creation_version"], records.live]
    older = sa.or_(table.c["_creation_version"] < new["_creation_version"], sa.and_(*same))
    changes = {**{name: new[name] for name in row if name != "id"}, "_deleted": sa.null()}
    upsert = statement.on_conflict_do_update(
        index_elements=["id"], set_=changes, where=None if force else older
    )
    return Statement(upsert.returning(table.c["id"]))


def _forget_statement(records: RecordTable) -> Statement:
    """Build the upsert of one tombstone; its creation version is the highest that was deleted."""
    table = records.table
    nothing = {column.name: sa.null() for column in records.columns.values()}
    gone = {
        "_creation_version": parameter("creation_version", sa.BigInteger()),
        "_deleted": sa.func.clock_timestamp(),
        "_nulls": sa.cast(sa.literal_column("'{}'"), NULLS),
    }
    statement = insert(table).values({"id": parameter("id", sa.Text()), **gone})
    changes = {**nothing, **{name: statement.excluded[name] for name in gone}}
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
        **{f"v_{name}": encoded(codec, values.get(name)) for name, codec in table.codecs.items()},
    }
