"""Runs as the rules of admission control see them, and holding them back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from sqlalchemy import Row, func, select

from mediator.admission.evaluation import Subject
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.runs import UNDER_WAY, change
from mediator.catalogue.tables import admission_rules, runs

__all__ = ["HeldRuns"]

_COLUMNS: Final = (
    runs.c.id,
    runs.c.database,
    runs.c.state,
    runs.c.held,
    runs.c.ended,
    runs.c.document["job"]["kind"].astext.label("kind"),
    runs.c.document["job"]["priority"].astext.label("priority"),
    func.extract("epoch", func.now() - runs.c.created).label("age_s"),
)
"""Without the members of the job that can be large."""


class HeldRuns:
    """Every method raises `Unavailable` if the catalogue does not answer."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def pending(self, limit: int) -> list[Subject]:
        """Return runs that have not ended: those that a worker has first, then the oldest."""
        is_waiting = runs.c.state == "queued"
        query = (
            select(*_COLUMNS).where(runs.c.ended.is_(None)).order_by(is_waiting, runs.c.position)
        )
        return [_subject(row) for row in await self._catalogue.execute(query.limit(limit))]

    async def ended(self, ids: Iterable[str]) -> list[Subject]:
        """Return the runs among `ids` that have ended."""
        query = select(*_COLUMNS).where(runs.c.id.in_(ids), runs.c.ended.is_not(None))
        return [_subject(row) for row in await self._catalogue.execute(query)]

    async def hold(self, run: str, version: int) -> bool:
        """Hold a run back; its worker, if it has one, releases it at its next heartbeat.

        Returns:
            False: it is held already, is being cancelled, or has ended; or the rules in force have
                another version.
        """
        # Locked: rules that start no run release all, and none may be held back after that.
        in_force = select(admission_rules.c.version).with_for_update(read=True)
        async with self._catalogue.begin() as connection:
            if (await connection.execute(in_force)).scalar_one_or_none() != version:
                return False
            changed = await connection.execute(_set_held(run, held=True))
            return changed.first() is not None

    async def let_go(self, run: str) -> bool:
        """Release a held run; False: it is not held, or has ended."""
        return (await self._catalogue.execute(_set_held(run, held=False))).first() is not None


def _set_held(run: str, *, held: bool) -> Any:
    statement = change(held=held).where(runs.c.id == run, runs.c.held != held)
    not_ending = runs.c.ended.is_(None), runs.c.cancelling.is_(False)
    return statement.where(*not_ending).returning(runs.c.id)


def _subject(row: Row[Any]) -> Subject:
    return {
        "id": row.id,
        "database": row.database,
        "kind": row.kind or "",
        "prio": int(row.priority or 0),
        "state": _state(row),
        "age_s": float(row.age_s),
    }


def _state(row: Row[Any]) -> str:
    if row.ended is not None:
        return str(row.state).upper()
    if row.held:
        return "INACTIVE"
    return "ACTIVE" if row.state in UNDER_WAY else "QUEUED"
