"""The epoch that schemas and layouts belong to, and what each epoch has changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import uuid4

from sqlalchemy import CursorResult, Row, delete, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from mediator.catalogue.stored_databases import Moment
from mediator.catalogue.tables import epoch, schema_changes

__all__ = [
    "NEWEST",
    "NOTED",
    "keep_unchanged",
    "moment_of",
    "next_moment",
    "notes_since",
    "tell_all",
]

NOTED: Final = 1_000
"""Changes whose databases are noted; who has missed more reads all."""

NEWEST: Final = select(epoch.c.epoch, schema_changes.c.change).outerjoin_from(
    epoch, schema_changes, schema_changes.c.epoch == epoch.c.epoch
)


async def keep_unchanged(connection: AsyncConnection) -> int:
    """Return the epoch, and let no change come until the end of this transaction."""
    locked = select(epoch.c.epoch).with_for_update(read=True)
    return int((await connection.execute(locked)).scalar_one())


def moment_of(found: CursorResult[Any]) -> Moment:
    """Return the moment that `NEWEST` has found."""
    return Moment(*found.one())


async def next_moment(connection: AsyncConnection, database: str) -> Moment:
    """Begin the next epoch, which changes a database; others wait for this transaction."""
    raised = update(epoch).values(epoch=epoch.c.epoch + 1).returning(epoch.c.epoch)
    new = Moment(int((await connection.execute(raised)).scalar_one()), uuid4().hex)
    # Notes of later epochs are of another history than this counter, which was restored.
    past, to_come = schema_changes.c.epoch <= new.epoch - NOTED, schema_changes.c.epoch >= new.epoch
    await connection.execute(delete(schema_changes).where(or_(past, to_come)))
    note = insert(schema_changes).values(epoch=new.epoch, change=new.change, database=database)
    await connection.execute(note)
    return new


async def notes_since(connection: AsyncConnection, since: int) -> Sequence[Row[Any]]:
    """Return the notes of an epoch and all later ones, in their order."""
    later = schema_changes.c.epoch >= since
    notes = select(schema_changes).where(later).order_by(schema_changes.c.epoch)
    return (await connection.execute(notes)).all()


def tell_all(noted: Sequence[Row[Any]], known: Moment, now: int) -> bool:
    """Whether notes say all that has changed from a known moment to the epoch of now."""
    if [note.epoch for note in noted] != [*range(known.epoch, now + 1)]:
        return False
    # The same epoch with another change: the catalogue was restored, and its history differs.
    return bool(noted) and noted[0].change == known.change
