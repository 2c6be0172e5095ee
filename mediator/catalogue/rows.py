"""Rows of the catalogue for backups: of tables that no other part of a backup holds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import select, text
from sqlalchemy.dialects.postgresql import insert

from mediator.catalogue.connection import Catalogue
from mediator.catalogue.row_decoding import KEPT, DecodedRow, kept_columns
from mediator.catalogue.tables import databases, runs
from mediator.catalogue.tenants import changed

__all__ = ["CatalogueRows"]


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
                wanted = select(*kept_columns(table))
                if table is runs:
                    there = runs.c.database_id.in_(select(databases.c.id))
                    # A restoration would start a run again that has not ended.
                    wanted = wanted.where(runs.c.ended.is_not(None), there)
                rows = (await connection.execute(wanted)).mappings()
                found += [{"table": str(table.name), "row": _encoded(dict(row))} for row in rows]
        return found

    async def add(self, rows: Iterable[DecodedRow], ids: Mapping[str, str]) -> int:
        """Add rows that are not there, all or none; return how many were not.

        Runs of databases that have no id here are left out: no client could see them.

        Args:
            rows: The rows; they come from a file, and are taken one by one in a thread.
            ids: The ids of databases, by name.

        Raises:
            Unavailable: The catalogue does not answer.
        """
        left, added = iter(rows), 0
        async with self._catalogue.begin() as connection:
            while (each := await asyncio.to_thread(next, left, None)) is not None:
                values = dict(each.values)
                if each.table is runs:
                    if values["database"] not in ids:
                        continue
                    values["database_id"] = ids[values["database"]]
                row = insert(each.table).values(values).on_conflict_do_nothing()
                added += (await connection.execute(row)).rowcount
            await connection.execute(changed())
        return added


def _encoded(row: dict[str, Any]) -> dict[str, Any]:
    # Names that SQLAlchemy quotes are of a type of their own, which is none of JSON's.
    return {str(n): v.isoformat() if isinstance(v, datetime) else v for n, v in row.items()}
