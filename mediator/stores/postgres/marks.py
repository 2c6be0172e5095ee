"""Marks of transactions, in the rows of the records that they lie on (`Lockable`).

A record that is absent gets a row, a tombstone without versions, so that whoever would insert the
record meets it. Marking passes the record's gate, as writes do.
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa

from mediator.stores.port import Standing
from mediator.stores.postgres.pool import transaction
from mediator.stores.postgres.statements import Statement, parameter, quoted
from mediator.stores.postgres.tables import RecordTable

__all__ = ["Marking"]

_LOCK: Final = """
INSERT INTO {table} (id, _birth, _deleted, _mark) VALUES ($1, 0, clock_timestamp(), $2)
ON CONFLICT (id) DO UPDATE SET _mark = excluded._mark WHERE {table}._mark IS NULL
"""
_UNLOCK: Final = "UPDATE {table} SET _mark = NULL WHERE id = $1 AND _mark = $2"


class Marking:
    """The statements that mark the records of one class.

    Args:
        records: The table of the class.
        gate: Passes the gates of records; see `lock_statement`.
    """

    def __init__(self, records: RecordTable, gate: Statement) -> None:
        table = quoted(str(records.table.schema), records.table.name)
        self._lock, self._unlock = _LOCK.format(table=table), _UNLOCK.format(table=table)
        self._gate = gate
        self._groups = tuple(records.versions)
        own = (records.table.c[name] for name in ("_birth", "_deleted", "_mark"))
        look = sa.select(*own, *records.versions.values())
        self._look = Statement(look.where(records.id == parameter("id", sa.Text())))

    async def lock(self, connection: Any, id_: str, mark: str) -> Standing:
        """Mark a record that has no mark."""
        async with transaction(connection):
            await connection.fetch(self._gate.text, *self._gate.arguments({"ids": [id_]}))
            await connection.execute(self._lock, id_, mark)
            return await self.look(connection, id_)

    async def unlock(self, connection: Any, id_: str, mark: str) -> None:
        """Take a mark away, if it is this one."""
        await connection.execute(self._unlock, id_, mark)

    async def look(self, connection: Any, id_: str) -> Standing:
        """Tell what stands of a record."""
        rows = await connection.fetch(self._look.text, *self._look.arguments({"id": id_}))
        if not rows:
            return Standing(None, {}, "")
        birth, deleted, mark, *versions = rows[0]
        pairs = zip(self._groups, versions, strict=True)
        known = {group: version for group, version in pairs if version}
        return Standing(birth if deleted is None else None, known, mark or "")
