"""The log of writes over several systems, in the catalogue (`mediator.transactions.log`).

Each call is one statement, which is its own transaction. Only decisions wait for the disk:
*committed* and *aborted*. An entry that a crash of the catalogue loses can no longer be committed,
as it does not exist, or is logged again by whoever meets its intents; an entry that reappears after
it was finished is applied again without effect.

Every write over several systems waits for these statements, so they are plain text: SQLAlchemy took
longer to build and compile one than the server needs to run it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from mediator.catalogue.connection import Catalogue
from mediator.catalogue.tables import transactions as table
from mediator.stores.port import RETENTION_S
from mediator.transactions.log import MAX_LEASE_S, State, TransactionEntry

__all__ = ["CatalogueTransactions"]

_NAMES: Final = {
    "log": table.fullname,
    "columns": "intent, database, records, operation, fingerprint, state, redo, answer,"
    " leased_until < now() AS overdue",
    "undecided": "state IN ('preparing', 'staged')",
    # A statement that reads this does not wait for the disk.
    "relaxed": "(SELECT set_config('synchronous_commit', 'off', true))",
}


def _sql(text: str) -> str:
    return text.format_map(_NAMES)


_BEGIN: Final = _sql("""
INSERT INTO {log} (intent, database, records, operation, fingerprint, redo, state, leased_until)
SELECT $1, $2, $3, $4, $5, $6, $7, now() + make_interval(secs => $8) FROM {relaxed} AS relaxed
ON CONFLICT DO NOTHING RETURNING intent
""")
_COMMIT: Final = _sql("""
UPDATE {log} SET state = 'committed', redo = $2 WHERE intent = $1 AND {undecided} RETURNING intent
""")
_ABORT: Final = _sql("""
UPDATE {log} SET state = 'aborted', leased_until = now() WHERE intent = $1 AND {undecided}
RETURNING intent
""")
_REFUSE: Final = _sql("""
INSERT INTO {log} (intent, database, records, state, leased_until)
SELECT intent, '', '[]', 'aborted', now() + make_interval(secs => $2)
FROM unnest($1::text[]) AS intent ON CONFLICT DO NOTHING
""")
_FINISH: Final = _sql("""
UPDATE {log} SET state = 'done', answer = $2, redo = NULL,
leased_until = now() + make_interval(secs => $3)
WHERE intent = $1 AND state = 'committed' AND {relaxed} = 'off'
""")
_REMOVE: Final = _sql("DELETE FROM {log} WHERE intent = ANY ($1::text[]) AND {relaxed} = 'off'")
_FIND: Final = _sql("SELECT {columns} FROM {log} WHERE intent = ANY ($1::text[])")
_FIND_OPERATION: Final = _sql("SELECT {columns} FROM {log} WHERE operation = $1")
# By the index of leases, because there are many answers, which are kept for a day.
_FIND_OPEN: Final = _sql("""
SELECT {columns} FROM {log} WHERE leased_until < now() + make_interval(secs => $3)
AND database = $1 AND state IN ('preparing', 'staged', 'committed')
AND EXISTS (
    SELECT FROM jsonb_array_elements(records) AS record
    WHERE record IN (SELECT jsonb_array_elements($2::jsonb))
)
""")
_TAKE: Final = _sql("""
UPDATE {log} SET leased_until = now() + make_interval(secs => $2) WHERE intent IN (
    SELECT intent FROM {log} WHERE leased_until < now() AND state <> 'done'
    ORDER BY leased_until LIMIT $1 FOR UPDATE SKIP LOCKED
) RETURNING {columns}
""")
_POSTPONE: Final = _sql("""
UPDATE {log} SET leased_until = now() + make_interval(secs => $2) WHERE intent = $1
""")
_REAP: Final = _sql("""
DELETE FROM {log} WHERE intent IN (
    SELECT intent FROM {log} WHERE leased_until < now() AND state = 'done'
    ORDER BY leased_until LIMIT $1 FOR UPDATE SKIP LOCKED
) RETURNING intent
""")


class CatalogueTransactions:
    """Implements `TransactionLog`. Leases use PostgreSQL's clock, which all replicas share."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def begin(self, entry: TransactionEntry, lease_s: float) -> bool:
        redo = None if entry.redo is None else _json(entry.redo)
        identity = (entry.intent, entry.database, _json(entry.records), entry.operation)
        state = (entry.fingerprint, redo, entry.state.value, lease_s)
        # A second begin of the same attempt is refused. A staged one must not arrive late.
        retry = entry.state is not State.STAGED
        return bool(await self._catalogue.fetch(_BEGIN, *identity, *state, retry=retry))

    async def commit(self, intent: str, redo: list[dict[str, Any]]) -> bool:
        # Not retried: if the first one took effect, a second one would return no row.
        return bool(await self._catalogue.fetch(_COMMIT, intent, _json(redo)))

    async def abort(self, intent: str) -> State | None:
        if await self._catalogue.fetch(_ABORT, intent):
            return State.ABORTED
        entry = (await self.find([intent])).get(intent)
        return entry.state if entry else None

    async def refuse(self, intents: Sequence[str], seconds: float) -> None:
        await self._catalogue.fetch(_REFUSE, intents, seconds)

    async def finish(self, intent: str, answer: list[dict[str, Any]]) -> None:
        await self._catalogue.fetch(_FINISH, intent, _json(answer), RETENTION_S)

    async def remove(self, intents: Sequence[str]) -> None:
        await self._catalogue.fetch(_REMOVE, intents)

    async def find(self, intents: Sequence[str]) -> dict[str, TransactionEntry]:
        rows = await self._catalogue.fetch(_FIND, intents, retry=True)
        return {row["intent"]: _entry(row) for row in rows}

    async def find_operation(self, operation: str) -> TransactionEntry | None:
        rows = await self._catalogue.fetch(_FIND_OPERATION, operation, retry=True)
        return _entry(rows[0]) if rows else None

    async def find_open(
        self, database: str, records: Sequence[Sequence[str]]
    ) -> dict[str, TransactionEntry]:
        arguments = (database, _json(records), MAX_LEASE_S)
        rows = await self._catalogue.fetch(_FIND_OPEN, *arguments, retry=True)
        return {row["intent"]: _entry(row) for row in rows}

    async def take(self, limit: int, lease_s: float) -> list[TransactionEntry]:
        return [_entry(row) for row in await self._catalogue.fetch(_TAKE, limit, lease_s)]

    async def postpone(self, intent: str, seconds: float) -> None:
        await self._catalogue.fetch(_POSTPONE, intent, seconds)

    async def reap(self, limit: int) -> int:
        return len(await self._catalogue.fetch(_REAP, limit))


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


def _entry(row: Mapping[str, Any]) -> TransactionEntry:
    return TransactionEntry(**{**row, "state": State(row["state"])})
