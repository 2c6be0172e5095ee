"""Which replicas may write, and the epoch that each has put in force (docs/replicas.md)."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import delete, func, select, update
from sqlalchemy.dialects.postgresql import insert

from mediator.catalogue.connection import Catalogue
from mediator.catalogue.tables import replicas

__all__ = ["CatalogueReplicas"]


class CatalogueReplicas:
    """The replicas. Every method raises `Unavailable` if the catalogue does not answer."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def join(self, name: str) -> None:
        """Add a replica, of which nothing is known yet."""
        row = insert(replicas).values(name=name, epoch=0).on_conflict_do_nothing()
        async with self._catalogue.begin() as connection:
            await connection.execute(row)

    async def confirm(self, name: str, epoch: int) -> bool:
        """Note that a replica has an epoch in force; False if it has been removed meanwhile."""
        confirmed = update(replicas).where(replicas.c.name == name)
        confirmed = confirmed.values(epoch=epoch, seen=func.now())
        async with self._catalogue.begin() as connection:
            row = await connection.execute(confirmed.returning(replicas.c.name))
            return row.first() is not None

    async def leave(self, name: str) -> None:
        """Remove a replica that writes no more."""
        async with self._catalogue.begin() as connection:
            await connection.execute(delete(replicas).where(replicas.c.name == name))

    async def behind(self, name: str, epoch: int, dead_s: float) -> list[str]:
        """Return the replicas other than `name` that have not confirmed an epoch.

        Those that have confirmed nothing for `dead_s` are removed first. A confirmation that is
        under way is waited for by that, and counts; one that comes later finds nothing to confirm.
        """
        others = replicas.c.name != name
        dead = delete(replicas).where(
            others, replicas.c.seen < func.now() - timedelta(seconds=dead_s)
        )
        late = select(replicas.c.name).where(others, replicas.c.epoch < epoch)
        async with self._catalogue.begin() as connection:
            await connection.execute(dead)
            return list((await connection.execute(late)).scalars())
