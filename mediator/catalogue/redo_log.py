"""The redo log, kept in the catalogue (`mediator.operations.redo`)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, Row, delete, func, select, update
from sqlalchemy.dialects.postgresql import insert

from mediator.catalogue.connection import Catalogue
from mediator.catalogue.tables import redo
from mediator.operations.redo import RedoRecord

__all__ = ["CatalogueRedoLog"]


class CatalogueRedoLog:
    """Implements `RedoLog`. Leases are told by PostgreSQL's clock, which all replicas share."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def add(self, record: RedoRecord, lease_s: float) -> None:
        """Add a record; see `RedoLog.add`."""
        row = insert(redo).values(
            operation=record.operation,
            database=record.database,
            class_name=record.class_name,
            steps=record.steps,
            leased_until=_in(lease_s),
        )
        async with self._catalogue.begin() as connection:
            # A repeated operation finds the record of its first try: both do the same.
            await connection.execute(row.on_conflict_do_nothing())

    async def decide(self, operation: str, birth: int) -> None:
        """Note the first step's birth, and let recovery have the record at once."""
        async with self._catalogue.begin() as connection:
            await connection.execute(
                update(redo)
                .where(redo.c.operation == operation)
                .values(birth=birth, leased_until=func.now())
            )

    async def remove(self, operation: str) -> None:
        """Remove a record; see `RedoLog.remove`."""
        async with self._catalogue.begin() as connection:
            await connection.execute(delete(redo).where(redo.c.operation == operation))

    async def find(self, operation: str) -> RedoRecord | None:
        """Return a record; see `RedoLog.find`."""
        async with self._catalogue.begin() as connection:
            rows = await connection.execute(select(redo).where(redo.c.operation == operation))
            row = rows.first()
        return _record(row) if row else None

    async def take(self, limit: int, lease_s: float) -> list[RedoRecord]:
        """Take over records whose lease has passed; two replicas never take the same."""
        due = (
            select(redo.c.operation)
            .where(redo.c.leased_until < func.now())
            .order_by(redo.c.leased_until)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        async with self._catalogue.begin() as connection:
            rows = await connection.execute(
                update(redo)
                .where(redo.c.operation.in_(due.scalar_subquery()))
                .values(leased_until=_in(lease_s))
                .returning(redo)
            )
            return [_record(row) for row in rows]


def _in(seconds: float) -> ColumnElement[Any]:
    return func.now() + timedelta(seconds=seconds)


def _record(row: Row[Any]) -> RedoRecord:
    return RedoRecord(row.operation, row.database, row.class_name, row.steps, row.birth)
