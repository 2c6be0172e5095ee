"""The log of transactions, kept in the catalogue (`mediator.transactions.log`).

Only what decides waits for the disk: *committed* and *aborted*. An entry that a crash of the
catalogue takes back cannot be committed any more, as there is none; one that comes back, after it
was finished, is applied again without effect.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, delete, func, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.dml import ReturningUpdate

from mediator.catalogue.connection import Catalogue
from mediator.catalogue.tables import transactions as table
from mediator.stores.port import REMEMBER_S
from mediator.transactions.log import Entry, State

__all__ = ["CatalogueTransactions"]

_COLUMNS: Final = (*table.c, (table.c.leased_until < func.now()).label("overdue"))


class CatalogueTransactions:
    """Implements `TransactionLog`. Leases are told by PostgreSQL's clock, which all share."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def begin(self, entry: Entry, lease_s: float) -> Entry | None:
        """Add an entry; see `TransactionLog.begin`."""
        row = insert(table).values(
            mark=entry.mark,
            database=entry.database,
            places=entry.places,
            operation=entry.operation,
            fingerprint=entry.fingerprint,
            state=State.MARKING,
            leased_until=_in(lease_s),
        )
        async with self._relaxed() as connection:
            added = await connection.execute(row.on_conflict_do_nothing().returning(table.c.mark))
            if added.first() is not None:
                return None
        # It may have been forgotten since; then the caller's next attempt succeeds.
        assert entry.operation is not None
        return await self.find_operation(entry.operation) or entry

    async def commit(self, mark: str, redo: list[dict[str, Any]]) -> bool:
        """Make a transaction happen; see `TransactionLog.commit`."""
        return await self._turn(mark, State.MARKING, state=State.COMMITTED, redo=redo)

    async def abort(self, mark: str) -> bool:
        """Keep a transaction from happening; see `TransactionLog.abort`."""
        if await self._turn(mark, State.MARKING, state=State.ABORTED):
            return True
        entry = await self.find(mark)
        return entry is None or entry.state is State.ABORTED

    async def finish(self, mark: str, answer: list[dict[str, Any]]) -> None:
        """Note that all is applied; see `TransactionLog.finish`."""
        committed = (table.c.mark == mark, table.c.state == State.COMMITTED)
        gone = delete(table).where(table.c.operation.is_(None), *committed)
        kept = (
            update(table)
            .where(*committed)
            .values(state=State.DONE, answer=answer, redo=None, leased_until=_in(REMEMBER_S))
        )
        async with self._relaxed() as connection:
            forgotten = await connection.execute(gone.returning(table.c.mark))
            if forgotten.first() is None:
                await connection.execute(kept)

    async def remove(self, mark: str) -> None:
        """Forget an entry; see `TransactionLog.remove`."""
        async with self._relaxed() as connection:
            await connection.execute(delete(table).where(table.c.mark == mark))

    async def find(self, mark: str) -> Entry | None:
        """Return an entry; see `TransactionLog.find`."""
        return await self._one(table.c.mark == mark)

    async def find_operation(self, operation: str) -> Entry | None:
        """Return the entry of an operation; see `TransactionLog.find_operation`."""
        return await self._one(table.c.operation == operation)

    async def claim(self, mark: str, lease_s: float) -> Entry | None:
        """Take an entry over; see `TransactionLog.claim`."""
        found = await self._taken(_lease(lease_s).where(table.c.mark == mark, *_DUE))
        return found[0] if found else None

    async def take(self, limit: int, lease_s: float) -> list[Entry]:
        """Take over entries whose lease has passed; see `TransactionLog.take`."""
        due = (
            select(table.c.mark)
            .where(*_DUE)
            .order_by(table.c.leased_until)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        return await self._taken(_lease(lease_s).where(table.c.mark.in_(due.scalar_subquery())))

    async def postpone(self, mark: str, seconds: float) -> None:
        """Change an entry's lease; see `TransactionLog.postpone`."""
        changed = update(table).where(table.c.mark == mark).values(leased_until=_in(seconds))
        async with self._catalogue.begin() as connection:
            await connection.execute(changed)

    async def reap(self, limit: int) -> int:
        """Forget what is done and remembered long enough; see `TransactionLog.reap`."""
        old = (
            select(table.c.mark)
            .where(table.c.state == State.DONE, table.c.leased_until < func.now())
            .limit(limit)
        )
        gone = delete(table).where(table.c.mark.in_(old.scalar_subquery()))
        async with self._catalogue.begin() as connection:
            return (await connection.execute(gone)).rowcount

    @asynccontextmanager
    async def _relaxed(self) -> AsyncIterator[AsyncConnection]:
        """Open a transaction that does not wait for the disk."""
        async with self._catalogue.begin() as connection:
            await connection.execute(text("SET LOCAL synchronous_commit TO OFF"))
            yield connection

    async def _turn(self, mark: str, from_: State, **values: Any) -> bool:
        turned = (
            update(table)
            .where(table.c.mark == mark, table.c.state == from_)
            .values(**values)
            .returning(table.c.mark)
        )
        async with self._catalogue.begin() as connection:
            return (await connection.execute(turned)).first() is not None

    async def _one(self, condition: ColumnElement[bool]) -> Entry | None:
        async with self._catalogue.begin() as connection:
            row = (await connection.execute(select(*_COLUMNS).where(condition))).first()
        return _entry(row) if row else None

    async def _taken(self, statement: ReturningUpdate[Any]) -> list[Entry]:
        async with self._catalogue.begin() as connection:
            return [_entry(row) for row in await connection.execute(statement)]


_DUE: Final = (table.c.leased_until < func.now(), table.c.state != State.DONE)


def _lease(seconds: float) -> ReturningUpdate[Any]:
    return update(table).values(leased_until=_in(seconds)).returning(*_COLUMNS)


def _in(seconds: float) -> ColumnElement[Any]:
    return func.now() + timedelta(seconds=seconds)


def _entry(row: Row[Any]) -> Entry:
    return Entry(
        row.mark,
        row.database,
        row.places,
        row.operation,
        row.fingerprint,
        State(row.state),
        row.redo,
        row.answer,
        row.overdue,
    )
