"""Which workers there are, for those who wonder why a run does not begin."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert

from mediator.catalogue.connection import Catalogue
from mediator.catalogue.tables import workers

__all__ = ["CatalogueWorkers", "WorkersSeen"]

_REMEMBERED = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class WorkersSeen:
    """Who has been seen of late.

    Attributes:
        working: How many can work.
        trouble: Why one of them cannot.
    """

    working: int
    trouble: str | None


class CatalogueWorkers:
    """The workers."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def heartbeat(self, worker: str, trouble: str | None) -> None:
        """Say that a worker is there, and what keeps it from working."""
        values = {"seen": func.now(), "trouble": trouble}
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
        async with self._catalogue.begin() as connection:
            rows = list(
                await connection.execute(
                    select(workers, workers.c.seen > func.now() - timedelta(seconds=within_s))
                )
            )
        working = sum(row[-1] and row.trouble is None for row in rows)
        troubles = (row.trouble for row in rows if row.trouble)
        return WorkersSeen(working, next(troubles, None))
