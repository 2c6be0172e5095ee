"""Rows of the catalogue for backups: of tables that no other part of a backup holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import DateTime, Table, select, text
from sqlalchemy.dialects.postgresql import insert

from mediator.catalogue.connection import Catalogue
from mediator.catalogue.tables import (
    admission_rules,
    api_keys,
    databases,
    runs,
    secrets,
    tenant_databases,
    tenants,
)
from mediator.catalogue.tenants import changed

__all__ = ["KEPT", "CatalogueRows"]

KEPT: Final[tuple[Table, ...]] = (
    secrets,
    runs,
    tenants,
    tenant_databases,
    api_keys,
    admission_rules,
)
"""Their rows are in backups."""


class CatalogueRows:
    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def read(self) -> list[dict[str, Any]]:
        """Return the rows of all tables that are kept, as of one moment.

        Of the runs only those that have ended, of databases that still exist.
        """
        found: list[dict[str, Any]] = []
        async with self._catalogue.begin() as connection:
            await connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
            for table in KEPT:
                wanted = select(*_columns(table))
                if table is runs:
                    there = runs.c.database_id.in_(select(databases.c.id))
                    # A restoration would start a run again that has not ended.
                    wanted = wanted.where(runs.c.ended.is_not(None), there)
                rows = (await connection.execute(wanted)).mappings()
                found += [{"table": str(table.name), "row": _encoded(dict(row))} for row in rows]
        return found

    async def add(self, rows: Sequence[dict[str, Any]], ids: Mapping[str, str]) -> int:
        """Add rows that are not there; return how many were not.

        Runs of databases that have no id here are left out: no client could see them.
        """
        tables = {table.name: table for table in KEPT}
        added = 0
        async with self._catalogue.begin() as connection:
            for each in rows:
                if (table := tables.get(each["table"])) is None:
                    continue  # a table that only a later version knows
                values = _row(table, each["row"])
                if table is runs:
                    if values["database"] not in ids:
                        continue
                    values["database_id"] = ids[values["database"]]
                row = insert(table).values(values).on_conflict_do_nothing()
                added += (await connection.execute(row)).rowcount
            await connection.execute(changed())
        return added


def _columns(table: Table) -> list[Any]:
    """Leave out identity columns: this catalogue numbers its rows itself."""
    return [column for column in table.c if column.identity is None]


def _encoded(row: dict[str, Any]) -> dict[str, Any]:
    # Names that SQLAlchemy quotes are of a type of their own, which is none of JSON's.
    return {str(n): v.isoformat() if isinstance(v, datetime) else v for n, v in row.items()}


def _row(table: Table, encoded: dict[str, Any]) -> dict[str, Any]:
    known = {column.name: column for column in _columns(table)}
    return {
        name: datetime.fromisoformat(value)
        if value is not None and isinstance(known[name].type, DateTime)
        else value
        for name, value in encoded.items()
        if name in known
    }
