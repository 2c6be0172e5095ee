"""Runs of analytic jobs: durable, and the queue of the workers.

States: queued → forecasting → running → done | failed | stopped | cancelled. The run of a worker is
leased; times are PostgreSQL's, which all share. Each worker that takes a run raises its `attempt`,
and its updates count only under that attempt (`mediator.catalogue.run_queue`).

What can happen:

1. A worker fails. Its lease passes, and another one takes the run, under the next attempt; after
   three the run has failed.
2. A worker is slow, loses its lease, and goes on: its heartbeat and its outcome change no row, so
   it stops. What it writes meanwhile is kept apart by the attempt (`run_directory`).
3. Admission control holds a run back: no worker takes it, and the reply to the heartbeat has the
   one that has it release it, after which it waits in the queue. Cancelling it ends that.
4. A run is cancelled while a worker has it: the heartbeat's reply says so, also to a worker that
   takes it over. If none has it, it ends immediately.
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
    "MOST_KEPT",
    "MOST_QUEUED",
    "MOST_RUNS",
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

MOST_QUEUED: Final = 1_000
"""Runs of a database that may wait at the same time."""

MOST_KEPT: Final = 5_000
"""Runs of a database that are kept: beyond, those that ended first go before their retention."""

MOST_RUNS: Final = MOST_KEPT + MOST_QUEUED
"""Runs of a database that there may be until a worker removes some: no more are taken."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run as the catalogue has it.

    Attributes:
        position: In the order of submission.
        document: The job, as JSON.
        dry_run: Whether it ends with its forecast.
        version: How often the row was changed.
        attempt: How often a worker took it.
        cancelling: Whether it is to end.
        held: Whether admission control holds it back.
        progress: What its worker reported last.
        outcome: How it ended; empty while it has not.
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
            bound: How many runs the tenant may have; None: any number.

        Raises:
            IdempotencyReused: The key was used for another job.
            TooManyRequests: There would be more than `bound` allows.
            Unavailable: Too many wait, or are kept.
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
            room = await _tenant_has_room(connection, bound)
            if room and await _has_room(connection, database_id):
                added = await connection.execute(row.on_conflict_do_nothing().returning(*_STORED))
                # No row: the key exists, maybe since a moment ago.
                if found := added.first():
                    return _run(found), False
            same = await _earlier(connection, database_id, key)
        if same is None and bound is not None and not room:
            raise bound.refusal()
        return _the_same(same, fingerprint), True

    async def find(self, database_id: str, run: str) -> StoredRun:
        found = select(*_STORED).where(_is(database_id, run))
        row = (await self._catalogue.execute(found)).first()
        return _stored(row)

    async def newest(self, database_id: str, before: int | None, limit: int) -> list[StoredRun]:
        """List runs, newest first; with `before`, those below that position."""
        beyond = true() if before is None else runs.c.position < before
        listed = select(*_STORED).where(runs.c.database_id == database_id, beyond)
        listed = listed.order_by(runs.c.position.desc()).limit(limit)
        return [_run(row) for row in await self._catalogue.execute(listed)]

    async def count(self) -> dict[tuple[str, str], int]:
        of = (runs.c.database, runs.c.state)
        rows = await self._catalogue.execute(select(*of, func.count()).group_by(*of))
        return {(row.database, row.state): row[-1] for row in rows}

    async def cancel(self, database_id: str, run: str) -> StoredRun:
        """End a run that no worker has, or have its worker end it; `Conflict` if it has ended."""
        idle = or_(runs.c.state == "queued", runs.c.leased_until < func.now())
        async with self._catalogue.begin() as connection:
            ended = change(state="cancelled", held=False, ended=func.now(), leased_until=None)
            await connection.execute(
                ended.where(_is(database_id, run), runs.c.ended.is_(None), idle)
            )
            cancelled = change(cancelling=True, held=False).where(_is(database_id, run))
            going_on = runs.c.ended.is_(None), runs.c.cancelling.is_(False)
            await connection.execute(cancelled.where(*going_on))
            found = await connection.execute(select(*_STORED).where(_is(database_id, run)))
            stored = _stored(found.first())
        if stored.state in ENDED - {"cancelled"}:
            raise Conflict(f"The run is {stored.state}.", extra={"state": stored.state})
        return stored

    async def resume(self, database_id: str, run: str, bound: RunBound | None = None) -> StoredRun:
        """Queue a run again that failed or was cancelled; what it has finished is not repeated.

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
            again = queued.where(_is(database_id, run), runs.c.state.in_(RESUMABLE))
            row = (await connection.execute(again.returning(*_STORED))).first()
            if row is not None:
                return _run(row)
            found = await connection.execute(select(*_STORED).where(_is(database_id, run)))
            stored = _stored(found.first())
        detail = f"The run is {stored.state}: only what failed or was cancelled is resumed."
        raise Conflict(detail, extra={"state": stored.state})


async def _earlier(
    connection: AsyncConnection, database_id: str, key: str | None
) -> RowMapping | None:
    # `= NULL` finds nothing, as it should without a key; `IS NULL` would.
    same_key = (runs.c.database_id == database_id) & (runs.c.key == literal(key, Text))
    found = await connection.execute(select(*_STORED, runs.c.fingerprint).where(same_key))
    return found.mappings().first()


async def _tenant_has_room(connection: AsyncConnection, bound: RunBound | None) -> bool:
    if bound is None:
        return True
    mine = runs.c.database.in_(bound.databases) & runs.c.ended.is_(None)
    counted = await connection.execute(select(func.count()).select_from(runs).where(mine))
    return int(counted.scalar_one()) + bound.pending < bound.limit


async def _has_room(connection: AsyncConnection, database_id: str) -> bool:
    waiting = func.count().filter(runs.c.state == "queued")
    counted = select(waiting, func.count()).where(runs.c.database_id == database_id)
    queued, all_ = (await connection.execute(counted)).one()
    return bool(queued < MOST_QUEUED and all_ < MOST_RUNS)


def _the_same(row: RowMapping | None, fingerprint: str | None) -> StoredRun:
    if row is None:
        detail = "Too many runs of this database wait, or are still kept; try again later."
        raise Unavailable(detail, system="spark", retry_after_s=60)
    members = dict(row)
    if members.pop("fingerprint") != fingerprint:
        raise IdempotencyReused("The key was used for another job.")
    return StoredRun(**members)


def change(**values: Any) -> Any:
    return update(runs).values(version=runs.c.version + 1, **values)


def _is(database_id: str, run: str) -> ColumnElement[bool]:
    return (runs.c.database_id == database_id) & (runs.c.id == run)


def _stored(row: Row[Any] | None) -> StoredRun:
    if row is None:
        raise NotFound("There is no such run.")
    return _run(row)


def _run(row: Row[Any]) -> StoredRun:
    return StoredRun(**row._mapping)  # noqa: SLF001 - SQLAlchemy's public name for it
