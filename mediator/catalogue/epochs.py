"""The epoch of schemas and layouts, and the change of each epoch."""

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
    "MAX_NOTES",
    "NEWEST",
    "is_complete",
    "lock_epoch",
    "moment_of",
    "next_moment",
    "notes_since",
]

MAX_NOTES: Final = 1_000
"""Maximum number of noted changes; a reader that has missed more reads all databases."""

NEWEST: Final = select(epoch.c.epoch, schema_changes.c.change).outerjoin_from(
    epoch, schema_changes, schema_changes.c.epoch == epoch.c.epoch
)


async def lock_epoch(connection: AsyncConnection) -> int:
    """Return the epoch, and block changes until the end of this transaction."""
    query = select(epoch.c.epoch).with_for_update(read=True)
    return int((await connection.execute(query)).scalar_one())


def moment_of(result: CursorResult[Any]) -> Moment:
    """Return the moment from the result of `NEWEST`."""
    return Moment(*result.one())


async def next_moment(connection: AsyncConnection, database: str) -> Moment:
    """Start the next epoch, which changes a database; other changes wait for this transaction."""
    increment = update(epoch).values(epoch=epoch.c.epoch + 1).returning(epoch.c.epoch)
    new = Moment(int((await connection.execute(increment)).scalar_one()), uuid4().hex)
    # Notes of later epochs belong to another history: the counter was restored.
    expired, later = (
        schema_changes.c.epoch <= new.epoch - MAX_NOTES,
        schema_changes.c.epoch >= new.epoch,
    )
    await connection.execute(delete(schema_changes).where(or_(expired, later)))
    note = insert(schema_changes).values(epoch=new.epoch, change=new.change, database=database)
    await connection.execute(note)
    return new


async def notes_since(connection: AsyncConnection, since: int) -> Sequence[Row[Any]]:
    """Return the notes of an epoch and all later ones, in their order."""
    is_later = schema_changes.c.epoch >= since
    notes = select(schema_changes).where(is_later).order_by(schema_changes.c.epoch)
    return (await connection.execute(notes)).all()


def is_complete(notes: Sequence[Row[Any]], former: Moment, now: int) -> bool:
    """Whether notes contain all changes from a former moment to the present epoch."""
    if [note.epoch for note in notes] != [*range(former.epoch, now + 1)]:
        return False
    # The same epoch with another change: the catalogue was restored, and its history differs.
    return bool(notes) and notes[0].change == former.change
