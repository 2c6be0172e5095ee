"""Schemas and layouts of all databases, the epoch they belong to, and what each epoch has changed.

Who knows the databases as of a moment is told what has changed since, if the catalogue knows all of
it: for each epoch from that moment to now there is a note of its change, and the note of the moment
itself names the change that made it. Otherwise he is told of all databases. That is so

- if it is too long ago: only the last `NOTED` changes are noted;
- if code that takes no notes has changed a schema, in a rolling upgrade: its epochs are missing;
- if the catalogue was restored from a backup, or has lost its last changes in a failover: its epoch
  is the lower one, or has been reached by another change by now.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from sqlalchemy import Row, delete, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from mediator.catalogue.connection import Catalogue
from mediator.catalogue.tables import databases, epoch, schema_changes, transactions
from mediator.errors import PreconditionFailed

__all__ = ["NOTED", "CatalogueSchemas", "Difference", "Moment", "Snapshot", "StoredDatabase"]

NOTED: Final = 1_000
"""Changes whose databases are noted; who has missed more reads all."""


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
class Moment:
    """A moment in the history of schemas.

    Attributes:
        epoch: How many changes there were.
        change: The id of the last of them; None if it is not noted.
    """

    epoch: int
    change: str | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All databases at one moment."""

    moment: Moment
    databases: Mapping[str, StoredDatabase]


@dataclass(frozen=True, slots=True)
class Difference:
    """The databases that have changed up to a moment, as they are then; None: it is gone."""

    moment: Moment
    changed: Mapping[str, StoredDatabase | None]


class CatalogueSchemas:
    """Reads and changes schemas. A change takes the epoch's row lock, so changes are serial."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def moment(self) -> Moment:
        """Return the newest moment, by one small query that waits for nobody."""
        async with self._catalogue.begin() as connection:
            return await _moment(connection)

    async def snapshot(self) -> Snapshot:
        """Read all databases as of one moment."""
        async with self._catalogue.begin() as connection:
            await _keep_unchanged(connection)
            return Snapshot(await _moment(connection), await _read(connection))

    async def since(self, known: Moment) -> Snapshot | Difference:
        """Read what has changed since a moment; everything, if that cannot be told."""
        async with self._catalogue.begin() as connection:
            at = await _keep_unchanged(connection)
            noted = await _notes(connection, known.epoch)
            if not _tell_all(noted, known, at):
                return Snapshot(await _moment(connection), await _read(connection))
            names = sorted({note.database for note in noted[1:]})
            found = await _read(connection, names) if names else {}
        return Difference(Moment(at, noted[-1].change), {name: found.get(name) for name in names})

    async def put(self, database: StoredDatabase) -> Moment:
        """Store a schema whose version follows the stored one; return the new moment.

        Raises:
            PreconditionFailed: Somebody else has changed the schema meanwhile.
        """
        async with self._catalogue.begin() as connection:
            new = await _next(connection, database.name)
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

    async def remove(self, name: str) -> Moment:
        """Forget a database, and the writes to it that are not settled; return the new moment."""
        async with self._catalogue.begin() as connection:
            new = await _next(connection, name)
            await connection.execute(delete(transactions).where(transactions.c.database == name))
            await connection.execute(delete(databases).where(databases.c.name == name))
        return new


async def _keep_unchanged(connection: AsyncConnection) -> int:
    """Keep changes from coming between the reads of a transaction; wait for one under way.

    Returns:
        The epoch.
    """
    locked = select(epoch.c.epoch).with_for_update(read=True)
    return int((await connection.execute(locked)).scalar_one())


async def _moment(connection: AsyncConnection) -> Moment:
    noted = schema_changes.c.epoch == epoch.c.epoch
    both = select(epoch.c.epoch, schema_changes.c.change).outerjoin_from(
        epoch, schema_changes, noted
    )
    return Moment(*(await connection.execute(both)).one())


async def _notes(connection: AsyncConnection, since: int) -> Sequence[Row[Any]]:
    """Return what is noted of the changes from an epoch on, in their order."""
    later = schema_changes.c.epoch >= since
    notes = select(schema_changes).where(later).order_by(schema_changes.c.epoch)
    return (await connection.execute(notes)).all()


def _tell_all(noted: Sequence[Row[Any]], known: Moment, now: int) -> bool:
    """Say whether notes tell of every change between a moment and an epoch."""
    if [note.epoch for note in noted] != [*range(known.epoch, now + 1)]:
        return False
    return bool(noted) and noted[0].change == known.change


async def _read(
    connection: AsyncConnection, names: Collection[str] | None = None
) -> dict[str, StoredDatabase]:
    """Read some databases, or all."""
    wanted = select(databases).order_by(databases.c.name)
    if names is not None:
        wanted = wanted.where(databases.c.name.in_(names))
    found = [StoredDatabase(*row) for row in await connection.execute(wanted)]
    return {database.name: database for database in found}


async def _next(connection: AsyncConnection, database: str) -> Moment:
    """Begin a new epoch, and note what it changes."""
    raised = update(epoch).values(epoch=epoch.c.epoch + 1).returning(epoch.c.epoch)
    new = Moment(int((await connection.execute(raised)).scalar_one()), uuid4().hex)
    # What is noted of epochs to come is from another history than the row that counts them.
    past, to_come = schema_changes.c.epoch <= new.epoch - NOTED, schema_changes.c.epoch >= new.epoch
    await connection.execute(delete(schema_changes).where(or_(past, to_come)))
    note = insert(schema_changes).values(epoch=new.epoch, change=new.change, database=database)
    await connection.execute(note)
    return new


async def _version(connection: AsyncConnection, name: str) -> int:
    found = select(databases.c.version).where(databases.c.name == name)
    return int((await connection.execute(found)).scalar_one_or_none() or 0)
