"""Runs as the workers see them: a queue; each run has one worker at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias

from sqlalchemy import ColumnElement, delete, func, or_, select
from sqlalchemy.dialects.postgresql import insert

from mediator.admission.load import Load
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.runs import MAX_STORED_RUNS, UNDER_WAY, RunState, change
from mediator.catalogue.storable import storable, storable_text
from mediator.catalogue.tables import runs, workers

__all__ = ["CatalogueWorkers", "HeartbeatReply", "RunQueue", "TakenRun", "WorkersSeen"]

MAX_FAILED_ATTEMPTS: Final = 3
_DIED: Final = (
    "The worker or its Spark died {} times while it carried out this run; it may lack memory."
)
_WORKER_RETENTION_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class TakenRun:
    id: str
    attempt: int
    database: str
    document: dict[str, Any]
    dry_run: bool
    cancelling: bool


HeartbeatReply: TypeAlias = Literal["continue", "cancel", "release", "lost"]
"""The reply to a heartbeat; `release`: the run is held back, and continues later; `lost`:
another worker has it, or it has ended."""


class RunQueue:
    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def take(self, lease_s: float) -> TakenRun | None:
        """Take the oldest run that waits or whose worker has stopped; each goes to one worker.

        Held runs are skipped.
        """
        is_abandoned = runs.c.state.in_(UNDER_WAY) & (runs.c.leased_until < func.now())
        due = (
            select(runs.c.id, runs.c.state, runs.c.failed_attempts)
            .where(
                runs.c.ended.is_(None), ~runs.c.held, or_(runs.c.state == "queued", is_abandoned)
            )
            .order_by(runs.c.position)
            .limit(1)
            # Workers that take runs at the same time skip each other's row instead of waiting.
            .with_for_update(skip_locked=True)
        )
        async with self._catalogue.begin() as connection:
            row = (await connection.execute(due)).first()
            if row is None:
                return None
            # Under way with an expired lease: the last attempt failed.
            failed_attempts = row.failed_attempts + (row.state != "queued")
            counters = {"failed_attempts": failed_attempts}
            if failed_attempts >= MAX_FAILED_ATTEMPTS:
                outcome = {"reasons": [_DIED.format(failed_attempts)]}
                failed = change(state="failed", outcome=outcome, ended=func.now(), **counters)
                await connection.execute(failed.where(runs.c.id == row.id))
                return None
            counters["attempt"] = runs.c.attempt + 1
            taking = change(state="forecasting", leased_until=_from_now(lease_s), **counters)
            columns = [runs.c[name] for name in TakenRun.__slots__]
            result = await connection.execute(taking.where(runs.c.id == row.id).returning(*columns))
            return TakenRun(*result.one())

    async def heartbeat(
        self, run: TakenRun, state: RunState, progress: Mapping[str, Any], lease_s: float
    ) -> HeartbeatReply:
        stored_progress = storable(progress)
        report = change(state=state, progress=stored_progress, leased_until=_from_now(lease_s))
        columns = runs.c.cancelling, runs.c.held
        result = await self._catalogue.execute(report.where(_leased(run)).returning(*columns))
        row = result.first()
        if row is None:
            return "lost"
        if row.cancelling:
            return "cancel"
        return "release" if row.held else "continue"

    async def end(
        self,
        run: TakenRun,
        state: RunState,
        progress: Mapping[str, Any],
        outcome: Mapping[str, Any],
    ) -> bool:
        """End a run; false if another worker has it, or it has ended.

        Raises:
            Unavailable: The catalogue does not answer.
            Invalid: It can never store the progress or the outcome.
        """
        report = {"progress": storable(progress), "outcome": storable(outcome)}
        ended = change(state=state, **report, ended=func.now(), leased_until=None)
        row = await self._catalogue.execute(ended.where(_leased(run)).returning(runs.c.id))
        return row.first() is not None

    async def release(self, run: TakenRun) -> None:
        queued = change(state="queued", leased_until=None)
        await self._catalogue.execute(queued.where(_leased(run)))

    async def abandon(self, run: TakenRun) -> None:
        """Leave a run like a worker that dies: the attempt counts as failed, and `take` decides."""
        expiry = change(leased_until=func.now())
        await self._catalogue.execute(expiry.where(_leased(run)))

    @asynccontextmanager
    async def forgetting(self, older_than_s: float, limit: int) -> AsyncIterator[list[str]]:
        """Remove ended runs: too old, or beyond the newest `MAX_STORED_RUNS` of their database.

        In the block, which gets their ids, none of them can be resumed; it makes their files
        unreachable. When it ends, the runs are removed; when it raises, they stay.

        Args:
            older_than_s: Seconds since the end of a run.
            limit: Maximum number of runs.

        Raises:
            Unavailable: The catalogue does not answer; some of the runs may be removed.
        """
        rank = func.row_number().over(
            partition_by=runs.c.database_id, order_by=runs.c.position.desc()
        )
        ranked = select(runs.c.id, runs.c.ended, rank.label("newer")).subquery()
        is_expired = or_(
            ranked.c.ended < _from_now(-older_than_s), ranked.c.newer > MAX_STORED_RUNS
        )
        # Unchanged rows only: a run that was resumed before it is locked has no end, or another.
        is_unchanged = (runs.c.id == ranked.c.id) & (runs.c.ended == ranked.c.ended)
        ended = select(runs.c.id).join(ranked, is_unchanged).where(is_expired).limit(limit)
        async with self._catalogue.begin() as connection:
            locked = ended.with_for_update(of=runs, skip_locked=True)
            ids = list((await connection.execute(locked)).scalars())
            yield ids
            await connection.execute(delete(runs).where(runs.c.id.in_(ids)))


def _leased(run: TakenRun) -> ColumnElement[bool]:
    under_way = runs.c.state.in_(UNDER_WAY)
    # The fence: a worker whose run was taken over has an older attempt, and changes no row.
    return (runs.c.id == run.id) & (runs.c.attempt == run.attempt) & under_way


def _from_now(seconds: float) -> ColumnElement[Any]:
    return func.now() + timedelta(seconds=seconds)


@dataclass(frozen=True, slots=True)
class WorkersSeen:
    """The number of recently seen workers that can work, and why one of them cannot."""

    working: int
    failure: str | None


class CatalogueWorkers:
    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def heartbeat(self, worker: str, failure: str | None, load: Load | None = None) -> None:
        load_document = None if load is None else asdict(load)
        reason = None if failure is None else storable_text(failure)
        values = {"seen": func.now(), "failure": reason, "load": load_document}
        new = insert(workers).values(name=worker, **values)
        row = new.on_conflict_do_update(index_elements=["name"], set_=values)
        async with self._catalogue.begin() as connection:
            await connection.execute(row)
            await connection.execute(
                delete(workers).where(workers.c.seen < _from_now(-_WORKER_RETENTION_S))
            )

    async def seen(self, within_s: float) -> WorkersSeen:
        """Count the workers seen within so many seconds; an error is shown for a day."""
        is_recent = workers.c.seen > _from_now(-within_s)
        rows = (await self._catalogue.execute(select(workers, is_recent))).all()
        working = sum(row[-1] and row.failure is None for row in rows)
        failures = (row.failure for row in rows if row.failure)
        return WorkersSeen(working, next(failures, None))

    async def loads(self, within_s: float) -> list[Load]:
        """Return the loads that workers have reported within so many seconds."""
        is_recent = workers.c.seen > _from_now(-within_s)
        query = select(workers.c.load).where(is_recent, workers.c.load.is_not(None))
        rows = (await self._catalogue.execute(query)).scalars()
        return [Load(row.get("cpu"), row.get("memory")) for row in rows]
