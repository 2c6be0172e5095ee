"""Runs of analytic jobs: durable, and the queue of the workers.

States: queued → forecasting → running → done | failed | stopped | cancelled. The run of a worker is
leased; times are PostgreSQL's, which all share. Each worker that takes a run raises its `attempt`,
and its updates count only under that attempt (`mediator.catalogue.run_queue`).

Possible events:

1. A worker fails. Its lease expires, and another one takes the run, under the next attempt; after
   three the run has failed.
2. A worker is slow, loses its lease, and continues: its heartbeat and its outcome change no row, so
   it stops. The attempt separates its later output (`run_directory`).
3. Admission control holds a run back: no worker takes it, and the reply to the heartbeat makes its
   worker release it, after which it waits in the queue. Cancelling it ends that.
4. A run is cancelled while a worker has it: the heartbeat's reply says so, also to a worker that
   takes it over. Without a worker, it ends immediately.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from sqlalchemy import (
    ColumnElement,
    Row,
    RowMapping,
    Text,
    func,
    literal,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from mediator.access.metering import RunBound
from mediator.base.errors import Conflict, IdempotencyReused, NotFound, Unavailable
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.tables import runs

__all__ = [
    "ENDED",
    "MAX_QUEUED",
    "MAX_RUNS",
    "MAX_STORED_RUNS",
    "UNDER_WAY",
    "CatalogueRuns",
    "RunState",
    "StoredRun",
    "change",
]

RunState: TypeAlias = Literal[
    "queued", "forecasting", "running", "done", "failed", "stopped", "cancelled"
]

ENDED: Final = frozenset({"done", "failed", "stopped", "cancelled"})
UNDER_WAY: Final = ("forecasting", "running")
RESUMABLE: Final = frozenset({"failed", "cancelled"})

MAX_QUEUED: Final = 1_000
"""Maximum number of waiting runs of a database."""

MAX_STORED_RUNS: Final = 5_000
"""Number of newest runs of a database: ended runs beyond it are removed before their retention
ends."""

MAX_RUNS: Final = MAX_STORED_RUNS + MAX_QUEUED
"""Maximum number of runs of a database until a worker removes some: further ones are refused."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run as the catalogue has it.

    Attributes:
        position: In the order of submission.
        document: The job, as JSON.
        dry_run: Whether it ends with its forecast.
        version: How often the row was changed.
        attempt: How often a worker took it.
        cancelling: Whether its worker is to end it.
        held: Whether admission control holds it back.
        progress: The last report of its worker.
        outcome: How it ended; empty until then.
    """

    id: str
    position: int
    database: str
    database_id: str
    document: dict[str, Any]
    dry_run: bool
    state: RunState
    version: int
    attempt: int
    cancelling: bool
    held: bool
    progress: dict[str, Any]
    outcome: dict[str, Any]
    created: datetime
    ended: datetime | None


_STORED: Final = [runs.c[name] for name in StoredRun.__slots__]


class CatalogueRuns:
    """Runs belong to the id of a database: a later one of its name has none of them."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def submit(
        self,
        run: str,
        database: tuple[str, str],
        document: Mapping[str, Any],
        *,
        dry_run: bool,
        key: str | None,
        fingerprint: str | None,
        bound: RunBound | None = None,
    ) -> tuple[StoredRun, bool]:
        """Add a run to the queue; return it, and whether its key was submitted before.

        Args:
            run: Its id.
            database: Name and id of the database.
            document: The job.
            dry_run: Whether it ends with its forecast.
            key: The Idempotency-Key.
            fingerprint: Of the request with that key.
            bound: Maximum number of runs of the tenant; None: any number.

        Raises:
            IdempotencyReused: The key was used for another job.
            TooManyRequests: There would be more than `bound` allows.
            Unavailable: Too many wait, or are stored.
        """
        name, database_id = database
        row = insert(runs).values(
            id=run,
            database=name,
            database_id=database_id,
            document=document,
            dry_run=dry_run,
            key=key,
            fingerprint=fingerprint,
        )
        async with self._catalogue.begin() as connection:
            tenant_has_room = await _tenant_has_room(connection, bound)
            if tenant_has_room and await _has_room(connection, database_id):
                added = await connection.execute(row.on_conflict_do_nothing().returning(*_STORED))
                # No row: the key exists, perhaps only just.
                if stored := added.first():
                    return _run(stored), False
            earlier = await _earlier(connection, database_id, key)
        if earlier is None and bound is not None and not tenant_has_room:
            raise bound.refusal()
        return _repeated_run(earlier, fingerprint), True

    async def find(self, database_id: str, run: str) -> StoredRun:
        query = select(*_STORED).where(_is_run(database_id, run))
        row = (await self._catalogue.execute(query)).first()
        return _stored(row)

    async def newest(self, database_id: str, before: int | None, limit: int) -> list[StoredRun]:
        """List runs, newest first; with `before`, those below that position."""
        is_before = true() if before is None else runs.c.position < before
        query = select(*_STORED).where(runs.c.database_id == database_id, is_before)
        query = query.order_by(runs.c.position.desc()).limit(limit)
        return [_run(row) for row in await self._catalogue.execute(query)]

    async def count(self) -> dict[tuple[str, str], int]:
        columns = (runs.c.database, runs.c.state)
        rows = await self._catalogue.execute(select(*columns, func.count()).group_by(*columns))
        return {(row.database, row.state): row[-1] for row in rows}

    async def cancel(self, database_id: str, run: str) -> StoredRun:
        """End a run without a worker, or have its worker end it; `Conflict` if it has ended."""
        idle = or_(runs.c.state == "queued", runs.c.leased_until < func.now())
        async with self._catalogue.begin() as connection:
            cancel_idle = change(state="cancelled", held=False, ended=func.now(), leased_until=None)
            await connection.execute(
                cancel_idle.where(_is_run(database_id, run), runs.c.ended.is_(None), idle)
            )
            cancel_running = change(cancelling=True, held=False).where(_is_run(database_id, run))
            not_ending = runs.c.ended.is_(None), runs.c.cancelling.is_(False)
            await connection.execute(cancel_running.where(*not_ending))
            result = await connection.execute(select(*_STORED).where(_is_run(database_id, run)))
            stored = _stored(result.first())
        if stored.state in ENDED - {"cancelled"}:
            raise Conflict(f"The run is {stored.state}.", extra={"state": stored.state})
        return stored

    async def resume(self, database_id: str, run: str, bound: RunBound | None = None) -> StoredRun:
        """Queue a failed or cancelled run again; its finished work is not repeated.

        Raises:
            NotFound: It does not exist.
            TooManyRequests: There would be more than `bound` allows.
            Conflict: It is done, was stopped by its limits, or has not ended.
        """
        queued = change(
            state="queued",
            cancelling=False,
            held=False,
            failed_attempts=0,
            ended=None,
            outcome={},
            leased_until=None,
        )
        async with self._catalogue.begin() as connection:
            if bound is not None and not await _tenant_has_room(connection, bound):
                raise bound.refusal()
            resume = queued.where(_is_run(database_id, run), runs.c.state.in_(RESUMABLE))
            row = (await connection.execute(resume.returning(*_STORED))).first()
            if row is not None:
                return _run(row)
            result = await connection.execute(select(*_STORED).where(_is_run(database_id, run)))
            stored = _stored(result.first())
        detail = f"The run is {stored.state}: only failed or cancelled runs can be resumed."
        raise Conflict(detail, extra={"state": stored.state})


async def _earlier(
    connection: AsyncConnection, database_id: str, key: str | None
) -> RowMapping | None:
    # `= NULL` finds no row, as it should without a key; `IS NULL` would.
    has_key = (runs.c.database_id == database_id) & (runs.c.key == literal(key, Text))
    result = await connection.execute(select(*_STORED, runs.c.fingerprint).where(has_key))
    return result.mappings().first()


async def _tenant_has_room(connection: AsyncConnection, bound: RunBound | None) -> bool:
    if bound is None:
        return True
    is_pending = runs.c.database.in_(bound.databases) & runs.c.ended.is_(None)
    result = await connection.execute(select(func.count()).select_from(runs).where(is_pending))
    return int(result.scalar_one()) + bound.pending < bound.limit


async def _has_room(connection: AsyncConnection, database_id: str) -> bool:
    queued_count = func.count().filter(runs.c.state == "queued")
    query = select(queued_count, func.count()).where(runs.c.database_id == database_id)
    queued, total = (await connection.execute(query)).one()
    return bool(queued < MAX_QUEUED and total < MAX_RUNS)


def _repeated_run(row: RowMapping | None, fingerprint: str | None) -> StoredRun:
    if row is None:
        detail = "Too many runs of this database wait, or are still kept; try again later."
        raise Unavailable(detail, system="spark", retry_after_s=60)
    members = dict(row)
    if members.pop("fingerprint") != fingerprint:
        raise IdempotencyReused("The key was used for another job.")
    return StoredRun(**members)


def change(**values: Any) -> Any:
    return update(runs).values(version=runs.c.version + 1, **values)


def _is_run(database_id: str, run: str) -> ColumnElement[bool]:
    return (runs.c.database_id == database_id) & (runs.c.id == run)


def _stored(row: Row[Any] | None) -> StoredRun:
    if row is None:
        raise NotFound("There is no such run.")
    return _run(row)


def _run(row: Row[Any]) -> StoredRun:
    return StoredRun(**row._mapping)  # noqa: SLF001 - SQLAlchemy's public name for it
