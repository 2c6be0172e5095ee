"""Runs, as the workers see them: a queue, of which nobody gets what another one has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias

from sqlalchemy import ColumnElement, delete, func, or_, select
from sqlalchemy.dialects.postgresql import insert

from mediator.catalogue.connection import Catalogue
from mediator.catalogue.runs import MOST_KEPT, UNDER_WAY, RunState, change
from mediator.catalogue.tables import runs, workers

__all__ = ["CatalogueWorkers", "HeartbeatReply", "RunQueue", "TakenRun", "WorkersSeen"]

MOST_FAILED_ATTEMPTS: Final = 3
_DIED: Final = (
    "The worker or its Spark died {} times while it carried out this run; it may lack memory."
)


_REMEMBERED = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class TakenRun:
    """What a worker needs of a run that it was given."""

    id: str
    attempt: int
    database: str
    document: dict[str, Any]
    dry_run: bool
    cancelling: bool


HeartbeatReply: TypeAlias = Literal["continue", "cancel", "lost"]
"""The reply to a heartbeat; `lost`: another worker has the run, or it has ended."""


class RunQueue:
    """Takes, keeps and ends runs; see `mediator.catalogue.runs`."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def take(self, lease_s: float) -> TakenRun | None:
        """Take the oldest run that waits, or whose worker is gone; no two workers get the same."""
        gone = runs.c.state.in_(UNDER_WAY) & (runs.c.leased_until < func.now())
        due = (
            select(runs.c.id, runs.c.state, runs.c.failed_attempts)
            .where(runs.c.ended.is_(None), or_(runs.c.state == "queued", gone))
            .order_by(runs.c.position)
            .limit(1)
            .with_for_update(skip_locked=True)
        )
        async with self._catalogue.begin() as connection:
            row = (await connection.execute(due)).first()
            if row is None:
                return None
            failed_attempts = row.failed_attempts + (row.state != "queued")
            if failed_attempts >= MOST_FAILED_ATTEMPTS:
                outcome = {"reasons": [_DIED.format(failed_attempts)]}
                failed = change(
                    state="failed",
                    outcome=outcome,
                    ended=func.now(),
                    failed_attempts=failed_attempts,
                )
                await connection.execute(failed.where(runs.c.id == row.id))
                return None
            taken = change(
                state="forecasting",
                attempt=runs.c.attempt + 1,
                failed_attempts=failed_attempts,
                leased_until=_in(lease_s),
            )
            wanted = [runs.c[name] for name in TakenRun.__slots__]
            given = await connection.execute(taken.where(runs.c.id == row.id).returning(*wanted))
            return TakenRun(*given.one())

    async def heartbeat(
        self, run: TakenRun, state: RunState, progress: Mapping[str, Any], lease_s: float
    ) -> HeartbeatReply:
        """Report the progress of a run, and extend its lease."""
        report = change(state=state, progress=progress, leased_until=_in(lease_s))
        row = await self._catalogue.execute(report.where(_held(run)).returning(runs.c.cancelling))
        cancelling = row.scalar_one_or_none()
        if cancelling is None:
            return "lost"
        return "cancel" if cancelling else "continue"

    async def end(
        self,
        run: TakenRun,
        state: RunState,
        progress: Mapping[str, Any],
        outcome: Mapping[str, Any],
    ) -> bool:
        """End a run; False if somebody else has it."""
        ended = change(
            state=state, progress=progress, outcome=outcome, ended=func.now(), leased_until=None
        )
        row = await self._catalogue.execute(ended.where(_held(run)).returning(runs.c.id))
        return row.first() is not None

    async def release(self, run: TakenRun) -> None:
        """Give a run back, for another worker to go on with."""
        queued = change(state="queued", leased_until=None)
        await self._catalogue.execute(queued.where(_held(run)))

    async def abandon(self, run: TakenRun) -> None:
        """Leave a run as a worker does that dies: it counts as a death, and `take` judges it."""
        left = change(leased_until=func.now())
        await self._catalogue.execute(left.where(_held(run)))

    async def old(self, older_than_s: float, limit: int) -> list[str]:
        """Return runs that ended so long ago, or before the newest that are kept of a database."""
        newer = func.row_number().over(
            partition_by=runs.c.database_id, order_by=runs.c.position.desc()
        )
        all_ = select(runs.c.id, runs.c.ended, newer.label("newer")).subquery()
        past = or_(all_.c.ended < _in(-older_than_s), all_.c.newer > MOST_KEPT)
        ended = select(all_.c.id).where(all_.c.ended.is_not(None), past).limit(limit)
        return list((await self._catalogue.execute(ended)).scalars())

    async def forget(self, ids: Sequence[str]) -> None:
        """Remove runs that have ended."""
        ended = runs.c.ended.is_not(None)
        await self._catalogue.execute(delete(runs).where(runs.c.id.in_(ids), ended))


def _held(run: TakenRun) -> ColumnElement[bool]:
    under_way = runs.c.state.in_(UNDER_WAY)
    return (runs.c.id == run.id) & (runs.c.attempt == run.attempt) & under_way


def _in(seconds: float) -> ColumnElement[Any]:
    return func.now() + timedelta(seconds=seconds)


@dataclass(frozen=True, slots=True)
class WorkersSeen:
    """How many workers of late can work, and why one of them cannot."""

    working: int
    failure: str | None


class CatalogueWorkers:
    """The workers."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def heartbeat(self, worker: str, failure: str | None) -> None:
        """Say that a worker is there, and what keeps it from working."""
        values = {"seen": func.now(), "failure": failure}
        row = insert(workers).values(name=worker, **values)
        async with self._catalogue.begin() as connection:
            await connection.execute(
                row.on_conflict_do_update(index_elements=[workers.c.name], set_=values)
            )
            await connection.execute(
                delete(workers).where(workers.c.seen < func.now() - _REMEMBERED)
            )

    async def seen(self, within_s: float) -> WorkersSeen:
        """Return the workers seen within so many seconds; an error is shown for a day."""
        rows = list(
            await self._catalogue.execute(
                select(workers, workers.c.seen > func.now() - timedelta(seconds=within_s))
            )
        )
        working = sum(row[-1] and row.failure is None for row in rows)
        failures = (row.failure for row in rows if row.failure)
        return WorkersSeen(working, next(failures, None))
