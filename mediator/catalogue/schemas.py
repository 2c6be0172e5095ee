"""Schemas and layouts of all databases, and the epoch they belong to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from mediator.catalogue.connection import Catalogue
from mediator.catalogue.tables import databases, epoch, redo
from mediator.errors import PreconditionFailed

__all__ = ["CatalogueSchemas", "Snapshot", "StoredDatabase"]


@dataclass(frozen=True, slots=True)
class StoredDatabase:
    """One database as the catalogue keeps it.

    Attributes:
        name: Its name.
        version: How often its schema was set.
        document: The schema as JSON.
        layout: For each class its version, and for each cache group the system and the fields.
    """

    name: str
    version: int
    document: dict[str, Any]
    layout: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All databases at one epoch."""

    epoch: int
    databases: Mapping[str, StoredDatabase]


class CatalogueSchemas:
    """Reads and changes schemas. A change takes the epoch's row lock, so changes are serial."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def epoch(self) -> int:
        """Return the newest epoch."""
        async with self._catalogue.begin() as connection:
            return int((await connection.execute(select(epoch.c.epoch))).scalar_one())

    async def snapshot(self) -> Snapshot:
        """Read all databases as of one epoch."""
        async with self._catalogue.begin() as connection:
            # The share lock keeps a change from coming between the two reads.
            locked = select(epoch.c.epoch).with_for_update(read=True)
            at = int((await connection.execute(locked)).scalar_one())
            rows = await connection.execute(select(databases).order_by(databases.c.name))
            found = [StoredDatabase(*row) for row in rows]
        return Snapshot(at, {database.name: database for database in found})

    async def put(self, database: StoredDatabase) -> int:
        """Store a schema whose version follows the stored one; return the new epoch.

        Raises:
            PreconditionFailed: Somebody else has changed the schema meanwhile.
        """
        async with self._catalogue.begin() as connection:
            new = await _next_epoch(connection)
            stored = await _version(connection, database.name)
            if stored != database.version - 1:
                raise PreconditionFailed(f"The schema of {database.name} was changed meanwhile.")
            values = {
                "version": database.version,
                "document": database.document,
                "layout": database.layout,
            }
            row = insert(databases).values(name=database.name, **values)
            await connection.execute(
                row.on_conflict_do_update(index_elements=[databases.c.name], set_=values)
            )
        return new

    async def remove(self, name: str) -> int:
        """Forget a database, and the writes to it that are not settled; return the new epoch."""
        async with self._catalogue.begin() as connection:
            new = await _next_epoch(connection)
            await connection.execute(delete(redo).where(redo.c.database == name))
            await connection.execute(delete(databases).where(databases.c.name == name))
        return new


async def _next_epoch(connection: AsyncConnection) -> int:
    raised = update(epoch).values(epoch=epoch.c.epoch + 1).returning(epoch.c.epoch)
    return int((await connection.execute(raised)).scalar_one())


async def _version(connection: AsyncConnection, name: str) -> int:
    found = select(databases.c.version).where(databases.c.name == name)
    return int((await connection.execute(found)).scalar_one_or_none() or 0)
