"""Claims of unique constraints (`Claiming`): columns with unique indexes, and reservations.

A record's claims are in its row. A reservation is a separate row of the same table, so that the
same index decides: a tombstone that no reader finds, with the write intent under which it was made.
Its id names constraint and record; no object has such an id, because of the control characters.

The statement that makes a reservation also checks the intent on the record, and locks its row.
Whoever removes the intent removes the reservations afterwards, in a statement that sees all of
them; so none outlives its intent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import asyncpg

from mediator.stores.port import TakenClaim, Write
from mediator.stores.postgres.layout import RecordTable, claim_index
from mediator.stores.postgres.sql import qualified, quoted

__all__ = ["ClaimStatements", "reservation_ids"]

_SEPARATOR: Final = "\x01"

_HOLDER: Final = "SELECT id, _intent FROM {table} WHERE {column} = $1"
_RESERVE: Final = """
WITH held AS (
    SELECT wanted.reserved, wanted.claim FROM {table} AS record
    JOIN unnest($2::text[], $3::text[], $4::text[]) AS wanted (id, claim, reserved)
    ON record.id = wanted.id
    WHERE record._intent = $1 AND record.{column} IS DISTINCT FROM wanted.claim
    FOR UPDATE OF record
)
INSERT INTO {table} (id, _creation_version, _deleted, _intent, {column})
SELECT reserved, 0, clock_timestamp(), $1, claim FROM held
ON CONFLICT (id) DO UPDATE SET _intent = excluded._intent, {column} = excluded.{column}
"""
_RELEASE: Final = "DELETE FROM {table} WHERE id = ANY ($1) AND _intent = $2"


def reservation_ids(records: RecordTable, ids: Iterable[str]) -> list[str]:
    """Return the ids of all possible reservations of records."""
    return [_reservation_id(constraint, id_) for id_ in ids for constraint in records.claims]


def _reservation_id(constraint: str, id_: str) -> str:
    return f"{_SEPARATOR}{constraint}{_SEPARATOR}{id_}"


class ClaimStatements:
    """Statements on the claims of a class."""

    def __init__(self, records: RecordTable) -> None:
        self._records = records
        self._release = _RELEASE.format(table=qualified(records.table))
        self._columns = {name: quoted(column.name) for name, column in records.claims.items()}
        self._constraints = {claim_index(records.table.name, name): name for name in records.claims}

    def violated_by(self, error: asyncpg.UniqueViolationError) -> str | None:
        """Return the violated unique constraint, or None if another index is violated."""
        return self._constraints.get(str(getattr(error, "constraint_name", None)))

    async def holder(
        self, connection: Any, constraint: str, claim: str | None
    ) -> TakenClaim | None:
        """Return the record that has, or has reserved, a claim."""
        row = await connection.fetchrow(self._text(_HOLDER, constraint), claim)
        if row is None:
            return None
        id_, intent = row
        if not id_.startswith(_SEPARATOR):
            return TakenClaim(constraint, id_)
        return TakenClaim(constraint, id_.rpartition(_SEPARATOR)[2], intent)

    async def reserve(self, connection: Any, constraint: str, writes: Sequence[Write]) -> None:
        """Reserve the claims of writes of one intent, all or (`UniqueViolationError`) none."""
        ids = [write.id for write in writes]
        claims = [write.claims[constraint] for write in writes]
        reservations = [_reservation_id(constraint, id_) for id_ in ids]
        statement = self._text(_RESERVE, constraint)
        await connection.execute(statement, writes[0].intent, ids, claims, reservations)

    async def release(self, connection: Any, ids: Iterable[str], intent: str) -> None:
        """Remove the reservations of records that were made under an intent."""
        await connection.execute(self._release, reservation_ids(self._records, ids), intent)

    def _text(self, template: str, constraint: str) -> str:
        columns = {"column": self._columns[constraint]}
        return template.format(table=qualified(self._records.table), **columns)
