"""Write intents, in the rows of the records that they lie on (`Lockable`).

A record that is absent gets a row, a tombstone without versions, so that whoever would insert the
record meets it. Setting an intent passes the record's gate, as writes do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from mediator.stores.port import Standing
from mediator.stores.postgres.pool import transaction
from mediator.stores.postgres.statements import Statement, parameter, quoted
from mediator.stores.postgres.tables import RecordTable

__all__ = ["Marking"]

_LOCK: Final = """
INSERT INTO {table} (id, _birth, _deleted, _mark)
SELECT id, 0, clock_timestamp(), $2 FROM unnest($1::text[]) AS id
ON CONFLICT (id) DO UPDATE SET _mark = excluded._mark WHERE {table}._mark IS NULL
"""
_UNLOCK: Final = "UPDATE {table} SET _mark = NULL WHERE id = ANY ($1) AND _mark = $2"
_JOIN: Final = """
UPDATE {table} SET _mark = NULL, _joint = CASE WHEN _deleted IS NULL THEN $2 ELSE _joint END
WHERE id = ANY ($1) AND _mark = $2
"""
_ABSENT: Final = Standing(None, {}, "")


class Marking:
    """The statements that set intents on the records of one class.

    Args:
        records: The table of the class.
        gate: Passes the gates of records; see `lock_statement`.
    """

    def __init__(self, records: RecordTable, gate: Statement) -> None:
        table = quoted(str(records.table.schema), records.table.name)
        self._lock, self._unlock, self._join = (
            text.format(table=table) for text in (_LOCK, _UNLOCK, _JOIN)
        )
        self._gate = gate
        self._groups = tuple(records.versions)
        own = (records.table.c[name] for name in ("id", "_birth", "_deleted", "_mark"))
        ids = parameter("ids", ARRAY(sa.Text()))
        look = sa.select(*own, *records.versions.values()).where(records.id == sa.any_(ids))
        self._look = Statement(look)

    async def lock(self, connection: Any, ids: Sequence[str], mark: str) -> dict[str, Standing]:
        """Set an intent on each record that has none."""
        async with transaction(connection):
            await connection.fetch(self._gate.text, *self._gate.arguments({"ids": ids}))
            await connection.execute(self._lock, ids, mark)
            return await self.look(connection, ids)

    async def unlock(self, connection: Any, ids: Sequence[str], mark: str, *, joint: bool) -> None:
        """Take an intent away wherever it is this one."""
        await connection.execute(self._join if joint else self._unlock, ids, mark)

    async def look(self, connection: Any, ids: Sequence[str]) -> dict[str, Standing]:
        """Tell what stands of records."""
        rows = await connection.fetch(self._look.text, *self._look.arguments({"ids": ids}))
        found: Mapping[str, Standing] = {row[0]: self._standing(row) for row in rows}
        return {id_: found.get(id_, _ABSENT) for id_ in ids}

    def _standing(self, row: Any) -> Standing:
        _, birth, deleted, mark, *versions = row
        pairs = zip(self._groups, versions, strict=True)
        known = {group: version for group, version in pairs if version}
        return Standing(birth if deleted is None else None, known, mark or "")
