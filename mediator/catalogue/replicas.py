"""Which replicas may write, and the epoch that each has put in force (docs/replicas.md)."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Final

from sqlalchemy import delete, func, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from mediator.base.errors import Conflict
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.tables import replicas

__all__ = ["CatalogueReplicas", "NotAlone", "Presence"]


_LOCK: Final = 7_306_842_011_357


class CatalogueReplicas:
    """The replicas. Every method raises `Unavailable` if the catalogue does not answer."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def join(self, name: str) -> None:
        """Add a replica, of which nothing is known yet."""
        row = insert(replicas).values(name=name, epoch=0).on_conflict_do_nothing()
        await self._catalogue.execute(row)

    async def confirm(self, name: str, epoch: int) -> bool:
        """Note that a replica has an epoch in force; False if it has been removed meanwhile."""
        confirmed = update(replicas).where(replicas.c.name == name)
        confirmed = confirmed.values(epoch=epoch, seen=func.now())
        row = await self._catalogue.execute(confirmed.returning(replicas.c.name))
        return row.first() is not None

    async def leave(self, name: str) -> None:
        """Remove a replica that writes no more."""
        await self._catalogue.execute(delete(replicas).where(replicas.c.name == name))

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


class NotAlone(Conflict):
    """Another replica serves the installation, and one of the two has to be the only one."""


class Presence:
    """The presence of this replica among the others; `alone`: there must be no other.

    Each holds a lock in the catalogue as long as its process lasts. A replica that must be alone
    holds it exclusively, all others share it, so that either finds the other. It is the lock of a
    PostgreSQL session: it goes with the process, however that ends. If the connection breaks, it
    is claimed anew.
    """

    def __init__(self, catalogue: Catalogue, *, alone: bool) -> None:
        self._catalogue = catalogue
        shared = "" if alone else "_shared"
        self._claim = text(f"SELECT pg_try_advisory_lock{shared}({_LOCK})")
        self.session: AsyncConnection | None = None

    async def hold(self) -> None:
        """Claim the lock, unless it is held; `NotAlone` if somebody else has it."""
        if self.session is not None and await self._lives(self.session):
            return
        async with self._catalogue.translating_errors():
            session = await self._catalogue.session()
            try:
                granted = (await session.execute(self._claim)).scalar_one()
            except BaseException:
                await session.invalidate()
                raise
        if not granted:
            await session.close()
            raise NotAlone("Another replica serves this installation.")
        self.session = session

    async def close(self) -> None:
        """Release the lock."""
        session, self.session = self.session, None
        if session is not None:
            with suppress(SQLAlchemyError, OSError):
                await session.invalidate()  # back in the pool it would keep the lock
                await session.close()

    async def _lives(self, session: AsyncConnection) -> bool:
        try:
            await session.execute(text("SELECT 1"))
        except (TimeoutError, SQLAlchemyError, OSError):
            await self.close()
            return False
        return True
