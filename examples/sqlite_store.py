"""The worked example of a store: SQLite, in a file or in memory (docs/add-store.md).

SQLite stores a record as JSON. A write is applied here (`stored_record`), in one transaction that
locks out other writers, so each write is atomic, also between processes. It implements one optional
protocol, the outbox (`sqlite_outbox`), so that the change feed is complete.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from typing import Any, Final, TypeVar

import orjson

from examples.sqlite_outbox import OUTBOX, log_entry, position_of, rows_of
from examples.stored_record import StoredRecord, apply_write
from mediator.model.operators import APPLICABLE, Operator
from mediator.schema.tagged import dump, load
from mediator.schema.types import FieldType
from mediator.stores.port import (
    Fragment,
    FragmentOf,
    LogPage,
    Read,
    Record,
    RememberedOperation,
    ServerFacts,
    Status,
    StoreBusy,
    StoreError,
    StoreRefused,
    StoreTimeout,
    StoreUnavailable,
    SystemConfig,
    Write,
    WriteResult,
)

__all__ = ["SqliteStore"]

T = TypeVar("T")

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS records (
    class TEXT, id TEXT, is_live INTEGER, content BLOB, PRIMARY KEY (class, id)
) WITHOUT ROWID
"""
_PAGE: Final = """
SELECT id, content FROM records WHERE class = ? AND id > ? AND is_live ORDER BY id LIMIT ?
"""
_APPEND: Final = "INSERT INTO outbox (time_us, entry) VALUES (?, ?)"
_ENTRIES: Final = (
    "SELECT number, time_us, entry FROM outbox WHERE number > ? ORDER BY number LIMIT ?"
)
_STORE: Final = "INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?)"


class SqliteStore:
    """SQLite as a `Store`.

    Args:
        config: `url` is ``sqlite:///path/to/file``, or ``sqlite://`` for one in memory.
    """

    def __init__(self, config: SystemConfig) -> None:
        self.config = config
        # One thread has the connection: calls run there one after the other, and a call finishes
        # even if its caller was cancelled.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"sqlite-{config.name}")
        self._open_connection: sqlite3.Connection | None = None

    async def open(self) -> None:
        """Open the file, or create it."""
        await self._run(self._connect)

    async def close(self) -> None:
        """Close the file."""
        if self._open_connection is not None:
            await self._run(self._open_connection.close)
        self._thread.shutdown()

    async def ping(self) -> None:
        """Run an empty query."""
        await self._run(lambda: self._connection.execute("SELECT 1"))

    async def time_us(self) -> int:
        """Return the clock of versions."""
        return _now_us()

    async def facts(self) -> ServerFacts:
        """Return what a crash may lose: a file is synchronised with the disk at each commit."""
        durability = 0.0 if self._path else None
        return ServerFacts("SQLite", sqlite3.sqlite_version, durability, replicas=0)

    def supports(self, operator: Operator, type_: FieldType) -> bool:
        """Return whether the operator applies to the type: `stored_record` supports all that do."""
        return type_ in APPLICABLE[operator]

    async def prepare(self, fragment: Fragment, previous: Fragment | None = None) -> None:
        """Do nothing: records are stored whole, whatever their fields."""

    async def drop(self, fragment: Fragment) -> None:
        """Remove all records of the class."""
        await self._run(
            lambda: self._connection.execute(
                "DELETE FROM records WHERE class = ?", (_class(fragment),)
            )
        )

    async def read(self, calls: Sequence[Read]) -> list[Record | None]:
        """Read records."""

        def read_record(call: Read) -> Record | None:
            record = self._stored(call.fragment, call.id)
            return record.to_record(call.id, call.fields) if record.is_live else None

        return await self._run(lambda: [read_record(call) for call in calls])

    async def write(self, calls: Sequence[Write], token: str = "") -> list[WriteResult]:
        """Apply each write in a transaction of its own."""

        def write(call: Write) -> WriteResult:
            with self._changing(call.fragment, call.id) as record:
                before, clock_us = copy(record), _now_us()
                result = apply_write(record, call, token, clock_us)
                if result.status is Status.APPLIED:
                    self._connection.executemany(_APPEND, rows_of(call, before, record, clock_us))
                return result

        return await self._run(lambda: [write(call) for call in calls])

    async def fence(self, fragment: Fragment, id_: str, token: str) -> Mapping[str, int]:
        """Store the token with the record."""

        def fence() -> dict[str, int]:
            with self._changing(fragment, id_) as record:
                record.fenced.add(token)
                return record.versions

        return await self._run(fence)

    async def recall(
        self, fragment: Fragment, id_: str, operation: str
    ) -> RememberedOperation | None:
        """Return the operation remembered with the record."""
        record = await self._run(lambda: self._stored(fragment, id_))
        return record.remembered.get(operation)

    async def scan(
        self,
        fragment: Fragment,
        after: str | None,
        limit: int,
        fields: tuple[str, ...] | None = None,
    ) -> list[Record]:
        """Read a page; SQLite compares text by its UTF-8 bytes, as the port requires."""
        page = (_class(fragment), after or "", limit)
        rows = await self._run(lambda: self._connection.execute(_PAGE, page).fetchall())
        return [_decoded(content).to_record(id_, fields) for id_, content in rows]

    async def count(self, fragment: Fragment) -> int:
        """Count the live records."""
        query = "SELECT count(*) FROM records WHERE class = ? AND is_live"
        [number] = await self._run(
            lambda: self._connection.execute(query, (_class(fragment),)).fetchone()
        )
        return int(number)

    def logs(self) -> Sequence[str]:
        """Name the only log."""
        return ("outbox",)

    async def changes(
        self,
        log: str,  # noqa: ARG002 - the port: there is one
        after: str | None,
        limit: int,
        fragment_of: FragmentOf,
    ) -> LogPage:
        """Read entries; no entry can appear later before a visible one."""
        page = (int(after or 0), limit)
        rows = await self._run(lambda: self._connection.execute(_ENTRIES, page).fetchall())
        entries = [log_entry(number, at, entry, fragment_of) for number, at, entry in rows]
        return LogPage(entries, is_last=len(entries) < limit)

    async def oldest(self, log: str) -> str | None:  # noqa: ARG002 - the port: there is one
        """Return the position of the first retained entry."""
        query = "SELECT min(number) FROM outbox"
        [number] = await self._run(lambda: self._connection.execute(query).fetchone())
        return None if number is None else position_of(number)

    async def trim(self, log: str, upto: str, keep_s: float) -> int:  # noqa: ARG002 - there is one
        """Remove entries; their numbers are not reused."""
        oldest_us = time.time_ns() // 1_000 - round(keep_s * 1_000_000)
        query = "DELETE FROM outbox WHERE number <= ? AND time_us < ?"
        return await self._run(
            lambda: self._connection.execute(query, (int(upto), oldest_us)).rowcount
        )

    @property
    def _path(self) -> str:
        return self.config.url.removeprefix("sqlite://")

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._open_connection is None:
            raise StoreUnavailable(f"{self.config.name}: not open")
        return self._open_connection

    def _connect(self) -> None:
        self._open_connection = sqlite3.connect(
            self._path or ":memory:", timeout=self.config.deadline_s, isolation_level=None
        )
        self._open_connection.execute("PRAGMA synchronous = FULL")
        self._open_connection.execute(_SCHEMA)
        self._open_connection.execute(OUTBOX)

    def _stored(self, fragment: Fragment, id_: str) -> StoredRecord:
        query = "SELECT content FROM records WHERE class = ? AND id = ?"
        row = self._connection.execute(query, (_class(fragment), id_)).fetchone()
        return _decoded(row[0]) if row else StoredRecord()

    @contextmanager
    def _changing(self, fragment: Fragment, id_: str) -> Iterator[StoredRecord]:
        """Yield a record to be changed, and store it; IMMEDIATE locks out all other writers."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            record = self._stored(fragment, id_)
            yield record
            row = (_class(fragment), id_, record.is_live, _encoded(record))
            self._connection.execute(_STORE, row)
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except (sqlite3.Error, RuntimeError) as error:
            raise self._failure(error) from None

    def _failure(self, error: Exception) -> StoreError:
        """Return the error of the port; texts of SQLite may quote what was sent."""
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        text = f"{self.config.name}: {name}"
        match name:
            case "SQLITE_BUSY":
                return StoreBusy(text)
            case "SQLITE_FULL" | "SQLITE_READONLY" | "SQLITE_TOOBIG":
                return StoreRefused(text)
            case "SQLITE_CANTOPEN" | "RuntimeError":
                return StoreUnavailable(text)
        return StoreTimeout(text)


def _class(fragment: Fragment) -> str:
    return f"{fragment.database}/{fragment.stored_as}"


def _encoded(record: StoredRecord) -> bytes:
    remembered = {
        operation: (previous.fingerprint, _encoded_result(previous.result))
        for operation, previous in record.remembered.items()
    }
    values, fenced = dump(record.values), sorted(record.fenced)
    versions = record.versions
    return orjson.dumps(
        (
            record.is_live,
            record.creation_version,
            versions,
            values,
            remembered,
            fenced,
            record.intent,
        )
    )


def _decoded(content: bytes) -> StoredRecord:
    is_live, creation_version, versions, values, remembered, fenced, intent = orjson.loads(content)
    operations = {
        operation: RememberedOperation(fingerprint, _decoded_result(result))
        for operation, (fingerprint, result) in remembered.items()
    }
    data: Any = load(values)
    return StoredRecord(is_live, creation_version, versions, data, operations, set(fenced), intent)


def _encoded_result(result: WriteResult) -> Any:
    return result.created, result.creation_version, result.versions, dump(dict(result.values))


def _decoded_result(encoded: Any) -> WriteResult:
    created, creation_version, versions, values = encoded
    returned: Any = load(values)
    return WriteResult(Status.APPLIED, created, creation_version, versions, returned)


def _now_us() -> int:
    return time.time_ns() // 1_000
