"""The outbox of a PostgreSQL store as a change log.

Rows are read in the order (xid, seq), which is the order of the writes to one record (see `write`).
Transactions commit out of order, so a row is returned only when no transaction with a lower id can
still commit one. `pg_snapshot_xmin` gives such a bound, but any open transaction that has written
anything anywhere in the cluster holds it back. Only writers to the outbox matter, and they can be
recognised: PostgreSQL locks the tables of a statement before it runs, hence *before* the
transaction gets its id, and until it ends. So, in this order:

1. Take a snapshot. It has all transactions below its `xmax`, and which of them are running.
2. Read the locks. A transaction of the snapshot that will write, or has written, to the outbox
   either holds its lock or has ended; a read that starts from here on sees its rows.
3. Read below the lowest transaction that holds the lock, or else below `xmax`.

Only our own hanging writers still hold the feed back: a statement ends at the deadline, a
transaction without a client at `idle_in_transaction_session_timeout` (see `connection`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

import orjson

from mediator.base.page_size import PageSize
from mediator.model.change import Change, kind_of
from mediator.schema.types import Value
from mediator.stores.outboxes import format_position, image_of, parse_position, read_entries
from mediator.stores.port import Fragment, FragmentOf, LogEntry, LogPage
from mediator.stores.postgres.codec import Codec
from mediator.stores.postgres.connection import transaction
from mediator.stores.postgres.sql import qualified
from mediator.stores.postgres.statements import Statements

__all__ = ["BEYOND", "LOG", "TRIM_BATCH", "OutboxLog", "TransactionSnapshot"]

LOG: Final = "outbox"

TRIM_BATCH: Final = 5_000
_MAX_TRIM_BATCHES: Final = 20
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US: Final = timedelta(microseconds=1)
_XID: Final = 0xFFFF_FFFF
"""Locks have only the lower half of a transaction id."""

# Columns are qualified: a bare name in ORDER BY would be the text column that is returned.
BEYOND: Final = """
SELECT o.xid::text, o.seq, change, database, class, object, "group", version, kind,
    before, before_nulls, after, after_nulls, at
FROM {outbox} o
WHERE (o.xid, o.seq) > ($1::text::xid8, $2) AND o.xid < $3::text::xid8
ORDER BY o.xid, o.seq LIMIT $4
"""
_OLDEST: Final = "SELECT o.xid::text, o.seq FROM {outbox} o ORDER BY o.xid, o.seq LIMIT 1"
_SNAPSHOT: Final = "SELECT pg_current_snapshot()::text"
# The snapshot is that of the statement, taken before it reads the locks.
_LOCKS: Final = """
SELECT pg_current_snapshot()::text, virtualtransaction, transactionid::text::bigint
FROM (VALUES (1)) one LEFT JOIN pg_locks ON granted AND (
    (locktype = 'transactionid' AND mode = 'ExclusiveLock')
    OR (locktype = 'relation' AND mode = 'RowExclusiveLock' AND relation = $1::text::regclass
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())))
"""
_TRIM: Final = """
WITH removed AS (
    DELETE FROM {outbox} WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM (
            SELECT ctid, at FROM {outbox} WHERE (xid, seq) <= ($1::text::xid8, $2)
            ORDER BY xid, seq LIMIT $4) oldest
        WHERE at <= clock_timestamp() - make_interval(secs => $3)))
    RETURNING 1)
SELECT count(*) FROM removed
"""


_Use: TypeAlias = Callable[[Callable[[Any], Awaitable[list[Any]]]], Awaitable[list[Any]]]
"""Runs a function with a connection until the deadline."""


@dataclass(frozen=True, slots=True)
class TransactionSnapshot:
    """The transactions running at a point in time, as `pg_current_snapshot` reports.

    Attributes:
        xmin: All transactions below it had ended.
        xmax: No transaction from it on had started.
        running: The running ones between.
    """

    xmin: int
    xmax: int
    running: tuple[int, ...]

    @classmethod
    def read(cls, text: str) -> TransactionSnapshot:
        """Read ``xmin:xmax:running,...``."""
        xmin, xmax, running = text.split(":")
        return cls(int(xmin), int(xmax), tuple(map(int, filter(None, running.split(",")))))

    def horizon(self, locks: Iterable[tuple[str, int | None]]) -> int:
        """Return the transaction id below which no writer is running any more.

        Args:
            locks: Pairs of a virtual transaction id and its transaction id, or None for a lock of
                the outbox.
        """
        writers, holders = set[str](), dict[int, str]()
        for holder, xid in locks:
            if xid is None:
                writers.add(holder)
            else:
                holders[xid] = holder
        # An id is assigned a moment before it is locked: an id without a lock can be a writer's.
        any_unlisted = not writers.issubset(holders.values())

        def matters(xid: int) -> bool:
            holder = holders.get(xid & _XID)
            return any_unlisted if holder is None else holder in writers

        return min(filter(matters, self.running), default=self.xmax)


class OutboxLog:
    """The outbox of a namespace, read and trimmed."""

    def __init__(self, statements: Statements, use: _Use) -> None:
        self._statements, self._use = statements, use
        self._name = qualified(statements.namespace_tables.outbox)
        self._page_size = PageSize()
        self._last_xmax = 0

    async def read(self, after: str | None, limit: int, fragment_of: FragmentOf) -> LogPage:
        """Return changes beyond a position; see `ChangeLog.changes`."""
        horizon, _ = await self.horizon()

        async def page(after: str | None, count: int) -> list[LogEntry]:
            xid, seq = parse_position(after)
            rows = await self.ordered(BEYOND, str(xid), seq, str(horizon), count)
            return [self._entry(row, fragment_of) for row in rows]

        return await read_entries(self._page_size, after, limit, page)

    async def horizon(self) -> tuple[int, int]:
        """Return (horizon, xmax), transaction ids.

        Whatever had committed before this call is below `xmax`; whatever is below `horizon` is
        returned by a read that starts after it.
        """
        ((text,),) = await self._use(lambda c: c.fetch(_SNAPSHOT))
        snapshot = TransactionSnapshot.read(text)
        horizon = snapshot.xmin
        if snapshot.xmin < self._last_xmax:
            # A transaction of the last snapshot is still running: it may not be ours.
            rows = await self._use(lambda c: c.fetch(_LOCKS, self._name))
            snapshot = TransactionSnapshot.read(rows[0][0])
            horizon = snapshot.horizon((row[1], row[2]) for row in rows if row[1] is not None)
        self._last_xmax = snapshot.xmax
        return horizon, snapshot.xmax

    async def oldest(self) -> str | None:
        """Return the position of the oldest row, or None."""
        rows = await self.ordered(_OLDEST)
        return _position(rows[0]) if rows else None

    async def trim(self, upto: str, keep_s: float) -> int:
        """Remove rows up to a position, a bounded number, but none younger than `keep_s`."""
        (xid, seq), removed = parse_position(upto), 0
        for _ in range(_MAX_TRIM_BATCHES):
            ((count,),) = await self.ordered(_TRIM, str(xid), seq, keep_s, TRIM_BATCH)
            removed += count
            if count < TRIM_BATCH:
                break
        return removed

    async def ordered(self, statement: str, *arguments: Any) -> list[Any]:
        """Run a statement that reads the outbox in its order."""
        text = statement.format(outbox=self._name)

        async def run(connection: Any) -> list[Any]:
            async with transaction(connection):
                # The plan is cached: made for a short log, it would sort a long one completely.
                await connection.execute("SET LOCAL enable_sort = off")
                rows: list[Any] = await connection.fetch(text, *arguments)
                return rows

        return await self._use(run)

    def _entry(self, row: Any, fragment_of: FragmentOf) -> LogEntry:
        fragment = fragment_of(row["database"], row["class"])
        change = None if fragment is None else self._change(row, fragment)
        return LogEntry(_position(row), change, _size(row))

    def _change(self, row: Any, fragment: Fragment) -> Change:
        codecs = self._statements.records(fragment).codecs

        def image(text: str | None, nulls: Sequence[str] | None) -> dict[str, Any] | None:
            if text is None:
                return None
            members = orjson.loads(text).items()
            # In jsonb, null also stands for a missing field; `nulls` names the null fields.
            present = ((n, v) for n, v in members if v is not None or n in (nulls or ()))
            return image_of(fragment, present, lambda name, value: _value(codecs[name], value))

        before = image(row["before"], row["before_nulls"])
        return Change(
            id=row["change"],
            database=fragment.database,
            class_name=row["class"],
            object_id=row["object"],
            group=row["group"],
            version=row["version"],
            kind=kind_of(row["kind"], absent=before is None),
            before=before,
            after=image(row["after"], row["after_nulls"]),
            time_us=(row["at"] - _EPOCH) // _US,
            database_id=fragment.database_id,
        )


def _value(codec: Codec, member: Any) -> Value:
    value: Value = member if member is None or codec.from_json is None else codec.from_json(member)
    return value


def _position(row: Any) -> str:
    return format_position(row[0], str(row[1]))


def _size(row: Any) -> int:
    return len(row["before"] or "") + len(row["after"] or "")
