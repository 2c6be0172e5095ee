"""Rows of the catalogue for backups: of tables that no other element of a backup holds."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self

from sqlalchemy import Table, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from mediator.catalogue.connection import Catalogue
from mediator.catalogue.row_decoding import BACKUP_TABLES, DecodedRow, backup_columns
from mediator.catalogue.tables import api_keys, databases, runs, tenant_databases, tenants
from mediator.catalogue.tenants import raise_version

__all__ = ["AddedRows", "CatalogueRows"]

_ACCESS: Final = (tenants, tenant_databases, api_keys)
"""Tables of access control. A row removed since a backup, such as a revoked key, stays removed."""


@dataclass(frozen=True, slots=True)
class AddedRows:
    """How many rows were added, and how many of tenants, their databases and keys were omitted."""

    added: int
    left_out: int


class CatalogueRows:
    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def read(self) -> list[dict[str, Any]]:
        """Return the rows of all tables in backups, as of one moment.

        Of runs, only those that have ended, of databases that still exist.
        """
        documents: list[dict[str, Any]] = []
        async with self._catalogue.begin() as connection:
            await connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
            for table in BACKUP_TABLES:
                query = select(*backup_columns(table))
                if table is runs:
                    exists = runs.c.database_id.in_(select(databases.c.id))
                    # A restoration would restart a run that has not ended.
                    query = query.where(runs.c.ended.is_not(None), exists)
                rows = (await connection.execute(query)).mappings()
                documents += [
                    {"table": str(table.name), "row": _encode_row(dict(row))} for row in rows
                ]
        return documents

    async def add(
        self, rows: Iterable[DecodedRow], ids: Mapping[str, str], *, keys: bool = False
    ) -> AddedRows:
        """Add missing rows, all or none.

        Runs of databases that have no id here are omitted: no client could see them. Tenants, their
        databases, and API keys are added to a catalogue that has none of these; to any other one
        only with `keys`.

        Args:
            rows: The rows; they come from a file, and a thread reads them one by one.
            ids: The ids of databases, by name.
            keys: Whether to add tenants and keys that were removed or revoked since.

        Raises:
            Unavailable: The catalogue does not answer.
        """
        remaining, added, left_out = iter(rows), 0, 0
        present: _PresentAccess | None = None
        async with self._catalogue.begin() as connection:
            while (decoded := await asyncio.to_thread(next, remaining, None)) is not None:
                if present is None and decoded.table in _ACCESS:
                    # Its row lock blocks changes of keys; only from here on, as runs come first.
                    await connection.execute(raise_version())
                    present = await _PresentAccess.of(connection)
                if present is not None and present.excludes(decoded) and not keys:
                    left_out += 1
                elif (values := _local_values(decoded, ids)) is not None:
                    row = insert(decoded.table).values(values).on_conflict_do_nothing()
                    added += (await connection.execute(row)).rowcount
        return AddedRows(added, left_out)

    async def left_out(self, rows: Iterable[DecodedRow]) -> int:
        """Return how many of these rows `add` would omit without `keys`.

        Raises:
            Unavailable: The catalogue does not answer.
        """
        async with self._catalogue.begin() as connection:
            present = await _PresentAccess.of(connection)
        return await asyncio.to_thread(lambda: sum(map(present.excludes, rows)))


@dataclass(frozen=True, slots=True)
class _PresentAccess:
    """The primary keys of the tenants, owned databases and API keys of a catalogue, by table."""

    _ids: Mapping[Table, Collection[str]]

    @classmethod
    async def of(cls, connection: AsyncConnection) -> Self:
        ids = {}
        for table in _ACCESS:
            result = await connection.execute(select(*table.primary_key))
            ids[table] = {*result.scalars()}
        return cls(ids)

    def excludes(self, row: DecodedRow) -> bool:
        """Whether it may have been removed on purpose: such rows exist, but not this one."""
        if row.table not in self._ids or not any(self._ids.values()):
            return False
        [column] = row.table.primary_key
        return row.values[column.name] not in self._ids[row.table]


def _local_values(row: DecodedRow, ids: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the values of a row in this catalogue; None: its database has no id here."""
    values = dict(row.values)
    if row.table is runs:
        if values["database"] not in ids:
            return None
        values["database_id"] = ids[values["database"]]
    return values


def _encode_row(row: dict[str, Any]) -> dict[str, Any]:
    # SQLAlchemy's quoted names are of their own type, which JSON cannot encode.
    return {str(n): v.isoformat() if isinstance(v, datetime) else v for n, v in row.items()}
