"""The log of writes over several systems, kept in the catalogue (`mediator.transactions.log`).

Each call is one statement that is a transaction by itself. Only what decides waits for the disk:
*committed* and *aborted*. An entry that a crash of the catalogue takes back cannot be committed any
more, as there is none; one that comes back, after it was finished, is applied again without effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, Text, any_, delete, func, literal, select, update
from sqlalchemy.dialects.postgresql import ARRAY, insert
from sqlalchemy.sql.dml import ReturningUpdate

from mediator.catalogue.connection import Catalogue
from mediator.catalogue.tables import transactions as table
from mediator.stores.port import REMEMBER_S
from mediator.transactions.log import Entry, State

__all__ = ["CatalogueTransactions"]

_COLUMNS: Final = (*table.c, (table.c.leased_until < func.now()).label("overdue"))

_RELAXED: Final = select(func.set_config("synchronous_commit", "off", True))
"""A statement that reads this does not wait for the disk."""


class CatalogueTransactions:
    """Implements `TransactionLog`. Leases are told by PostgreSQL's clock, which all share."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def begin(self, entry: Entry, lease_s: float) -> bool:
        """Add an entry; see `TransactionLog.begin`."""
        values = {
            "mark": literal(entry.mark),
            "database": literal(entry.database),
            "places": literal(entry.places, table.c.places.type),
            "operation": literal(entry.operation, Text),
            "fingerprint": literal(entry.fingerprint, Text),
            "state": literal(State.MARKING.value),
            "leased_until": _in(lease_s),
        }
        relaxed = _RELAXED.subquery()
        row = insert(table).from_select(list(values), select(*values.values()).select_from(relaxed))
        # A second one of the same attempt is refused, so it may be sent again.
        _, added = await self._catalogue.run(row.on_conflict_do_nothing(), again=True)
        return added == 1

    async def commit(self, mark: str, redo: list[dict[str, Any]]) -> bool:
        """Make a write happen; see `TransactionLog.commit`."""
        marking = (table.c.mark == mark, table.c.state == State.MARKING)
        values = {"state": State.COMMITTED, "redo": redo}
        _, turned = await self._catalogue.run(update(table).where(*marking).values(values))
        return turned == 1

    async def abort(self, mark: str) -> bool:
        """Keep a write from happening; see `TransactionLog.abort`."""
        marking = (table.c.mark == mark, table.c.state == State.MARKING)
        values = {"state": State.ABORTED, "leased_until": func.now()}
        _, turned = await self._catalogue.run(update(table).where(*marking).values(values))
        if turned:
            return True
        entry = (await self.find([mark])).get(mark)
        return entry is None or entry.state is State.ABORTED

    async def refuse(self, marks: Sequence[str], seconds: float) -> None:
        """Add unknown ones as aborted; see `TransactionLog.refuse`."""
        common = {"database": "", "places": [], "state": State.ABORTED}
        rows = [{"mark": mark, "leased_until": _in(seconds), **common} for mark in marks]
        await self._catalogue.run(insert(table).values(rows).on_conflict_do_nothing())

    async def finish(self, mark: str, answer: list[dict[str, Any]]) -> None:
        """Note that all is applied; see `TransactionLog.finish`."""
        committed = (table.c.mark == mark, table.c.state == State.COMMITTED)
        values = {
            "state": State.DONE,
            "answer": answer,
            "redo": None,
            "leased_until": _in(REMEMBER_S),
        }
        await self._catalogue.run(update(table).where(*committed, _relaxed()).values(values))

    async def remove(self, marks: Sequence[str]) -> None:
        """Forget entries; see `TransactionLog.remove`."""
        await self._catalogue.run(delete(table).where(_among(marks), _relaxed()))

    async def find(self, marks: Sequence[str]) -> dict[str, Entry]:
        """Return entries; see `TransactionLog.find`."""
        rows, _ = await self._catalogue.run(select(*_COLUMNS).where(_among(marks)), again=True)
        return {row.mark: _entry(row) for row in rows}

    async def find_operation(self, operation: str) -> Entry | None:
        """Return the entry of an operation; see `TransactionLog.find_operation`."""
        found = select(*_COLUMNS).where(table.c.operation == operation)
        rows, _ = await self._catalogue.run(found, again=True)
        return _entry(rows[0]) if rows else None

    async def take(self, limit: int, lease_s: float) -> list[Entry]:
        """Take over entries whose lease has passed; see `TransactionLog.take`."""
        due = (
            select(table.c.mark)
            .where(table.c.leased_until < func.now(), table.c.state != State.DONE)
            .order_by(table.c.leased_until)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        leased = _lease(lease_s).where(table.c.mark.in_(due.scalar_subquery()))
        rows, _ = await self._catalogue.run(leased)
        return [_entry(row) for row in rows]

    async def postpone(self, mark: str, seconds: float) -> None:
        """Change an entry's lease; see `TransactionLog.postpone`."""
        changed = update(table).where(table.c.mark == mark).values(leased_until=_in(seconds))
        await self._catalogue.run(changed)

    async def reap(self, limit: int) -> int:
        """Forget what is done and remembered long enough; see `TransactionLog.reap`."""
        old = (
            select(table.c.mark)
            .where(table.c.state == State.DONE, table.c.leased_until < func.now())
            .limit(limit)
        )
        gone = delete(table).where(table.c.mark.in_(old.scalar_subquery()))
        _, removed = await self._catalogue.run(gone)
        return removed


def _among(marks: Sequence[str]) -> ColumnElement[bool]:
    return table.c.mark == any_(literal(list(marks), ARRAY(Text)))


def _relaxed() -> ColumnElement[bool]:
    return _RELAXED.scalar_subquery() == "off"


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
