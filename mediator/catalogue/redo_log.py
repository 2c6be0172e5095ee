"""The redo log, kept in the catalogue (`mediator.operations.redo`)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, Row, any_, delete, func, literal, select, update
from sqlalchemy.dialects.postgresql import ARRAY, insert
from sqlalchemy.types import Text

from mediator.catalogue.connection import Catalogue
from mediator.catalogue.tables import redo
from mediator.operations.redo import RedoRecord

__all__ = ["CatalogueRedoLog"]


class CatalogueRedoLog:
    """Implements `RedoLog`. Leases are told by PostgreSQL's clock, which all replicas share."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def add(self, record: RedoRecord, lease_s: float) -> bool:
        """Add a record; see `RedoLog.add`."""
        row = insert(redo).values(
            operation=record.operation,
            database=record.database,
            class_name=record.class_name,
            object=record.id,
            steps=record.steps,
            leased_until=_in(lease_s),
        )
        async with self._catalogue.begin() as connection:
            added = await connection.execute(row.on_conflict_do_nothing().returning(redo.c.object))
            return added.first() is not None

    async def decide(self, operation: str, birth: int) -> None:
        """Note the first step's birth; see `RedoLog.decide`."""
        await self._change(operation, birth=birth, leased_until=func.now())

    async def postpone(self, operation: str, seconds: float) -> None:
        """Change a record's lease; see `RedoLog.postpone`."""
        await self._change(operation, leased_until=_in(seconds))

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

    async def unsettled(self, database: str, class_name: str, ids: Sequence[str]) -> set[str]:
        """Return the objects with a record; see `RedoLog.unsettled`."""
        found = select(redo.c.object).where(
            redo.c.database == database,
            redo.c.class_name == class_name,
            redo.c.object == any_(literal(list(ids), ARRAY(Text))),
        )
        async with self._catalogue.begin() as connection:
            return set((await connection.execute(found)).scalars())

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

    async def _change(self, operation: str, **values: Any) -> None:
        changed = update(redo).where(redo.c.operation == operation).values(**values)
        async with self._catalogue.begin() as connection:
            await connection.execute(changed)


def _in(seconds: float) -> ColumnElement[Any]:
    return func.now() + timedelta(seconds=seconds)


def _record(row: Row[Any]) -> RedoRecord:
    return RedoRecord(row.operation, row.database, row.class_name, row.object, row.steps, row.birth)
