"""Write intents, in the rows of their records (`Lockable`).

An absent record gets a row, a tombstone without versions, so that an insertion of the record
conflicts with it. Setting an intent takes the advisory lock of the record, as writes do.

One statement sets an intent and returns the state of the record. A row with another intent, or
fenced against this one (see `fencing`), is updated without a change, because `RETURNING` returns
only updated rows; it is the newest row, which is locked. The advisory locks are taken before the
first row is made, because they are counted before they are joined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mediator.stores.port import RecordState
from mediator.stores.postgres.claims import ClaimStatements
from mediator.stores.postgres.connection import transaction
from mediator.stores.postgres.layout import RecordTable
from mediator.stores.postgres.sql import Statement, qualified, quoted

__all__ = ["IntentStatements"]

_LOCK: Final = """
WITH locks AS ({locks})
INSERT INTO {table} AS record (id, _creation_version, _deleted, _intent, _redo)
SELECT id, 0, clock_timestamp(), $2, $3::text FROM locks, unnest($1::text[]) AS id
ON CONFLICT (id) DO UPDATE SET
    _intent = coalesce(
        record._intent, CASE WHEN record._fences ? $2 THEN NULL ELSE excluded._intent END
    ),
    _redo = CASE
        WHEN record._intent IS NOT NULL THEN record._redo
        WHEN record._fences ? $2 THEN NULL
        ELSE excluded._redo
    END
RETURNING {columns}, NULL
"""
_READ: Final = """
SELECT {columns}, CASE WHEN $2 THEN record._redo END FROM {table} AS record WHERE id = ANY ($1)
"""
_UNLOCK: Final = """
UPDATE {table} SET _intent = NULL, _redo = NULL WHERE id = ANY ($1) AND _intent = $2
"""
_UNLOCK_JOINT: Final = """
UPDATE {table} SET
    _intent = NULL, _redo = NULL, _joint = CASE WHEN _deleted IS NULL THEN $2 ELSE _joint END
WHERE id = ANY ($1) AND _intent = $2
"""
_ABSENT: Final = RecordState(None, {}, "")


class IntentStatements:
    """Statements on the intents of a class's records; `lock` comes from `lock_statement`."""

    def __init__(self, records: RecordTable, lock: Statement) -> None:
        versions = [quoted("record", column.name) for column in records.versions.values()]
        names = ("id", "_creation_version", "_deleted", "_intent", "_joint")
        columns = [f"record.{name}" for name in names]
        substitutions = {
            "table": qualified(records.table),
            "columns": ", ".join(columns + versions),
            "locks": lock.text,
        }
        self._lock, self._read, self._unlock, self._unlock_joint = (
            text.format_map(substitutions) for text in (_LOCK, _READ, _UNLOCK, _UNLOCK_JOINT)
        )
        self._groups = tuple(records.versions)
        self._claims = ClaimStatements(records) if records.claims else None

    async def lock(
        self, connection: Any, ids: Sequence[str], intent: str, redo: str
    ) -> dict[str, RecordState]:
        return self._states(await connection.fetch(self._lock, ids, intent, redo or None), ids)

    async def unlock(
        self, connection: Any, ids: Sequence[str], intent: str, *, joint: bool
    ) -> None:
        statement = self._unlock_joint if joint else self._unlock
        if self._claims is None:
            await connection.execute(statement, ids, intent)
            return
        async with transaction(connection):
            await connection.execute(statement, ids, intent)
            await self._claims.release(connection, ids, intent)

    async def read(
        self, connection: Any, ids: Sequence[str], *, redo: bool
    ) -> dict[str, RecordState]:
        return self._states(await connection.fetch(self._read, ids, redo), ids)

    def _states(self, rows: Sequence[Any], ids: Sequence[str]) -> dict[str, RecordState]:
        states: Mapping[str, RecordState] = {row[0]: self._record_state(row) for row in rows}
        return {id_: states.get(id_, _ABSENT) for id_ in ids}

    def _record_state(self, row: Any) -> RecordState:
        _, creation_version, deleted, intent, joint, *versions, redo = row
        pairs = zip(self._groups, versions, strict=True)
        current_versions = {group: version for group, version in pairs if version}
        live_version = creation_version if deleted is None else None
        return RecordState(live_version, current_versions, intent or "", joint or "", redo or "")
