"""The replicas that may write, and the epoch that each has in force (docs/replicas.md)."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Final

from sqlalchemy import Delete, delete, func, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from mediator.base.errors import Conflict
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.tables import replicas

__all__ = ["CatalogueReplicas", "NotAlone", "Presence"]


_LOCK: Final = 7_306_842_011_357


class CatalogueReplicas:
    """Every method raises `Unavailable` if the catalogue does not answer."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def join(self, name: str) -> None:
        row = insert(replicas).values(name=name, epoch=0).on_conflict_do_nothing()
        await self._catalogue.execute(row)

    async def confirm(self, name: str, epoch: int) -> bool:
        """Record that a replica has an epoch in force; false if it was removed meanwhile."""
        confirmation = update(replicas).where(replicas.c.name == name)
        confirmation = confirmation.values(epoch=epoch, seen=func.now())
        row = await self._catalogue.execute(confirmation.returning(replicas.c.name))
        return row.first() is not None

    async def leave(self, name: str) -> None:
        await self._catalogue.execute(delete(replicas).where(replicas.c.name == name))

    async def behind(self, name: str, epoch: int, expired_s: float) -> list[str]:
        """Return the replicas other than `name` that have not confirmed an epoch.

        Replicas that have confirmed nothing for `expired_s` are removed first.
        """
        query = select(replicas.c.name).where(replicas.c.name != name, replicas.c.epoch < epoch)
        async with self._catalogue.begin() as connection:
            # It waits for a confirmation in progress, which counts; a later one finds no row.
            await connection.execute(_delete_expired(name, expired_s))
            return list((await connection.execute(query)).scalars())

    async def remove_expired(self, name: str, expired_s: float) -> None:
        """Remove replicas other than `name` that have confirmed nothing for `expired_s`."""
        await self._catalogue.execute(_delete_expired(name, expired_s))


def _delete_expired(name: str, expired_s: float) -> Delete:
    oldest_seen = func.now() - timedelta(seconds=expired_s)
    return delete(replicas).where(replicas.c.name != name, replicas.c.seen < oldest_seen)


class NotAlone(Conflict):
    """Another replica serves the installation, and one of the two must be the only one."""


class Presence:
    """The presence of this replica among all replicas; `alone`: there must be no other.

    A replica that must be alone holds a lock of the catalogue exclusively, all others share it, so
    that either finds the other. It is the lock of a PostgreSQL session and ends with the process,
    in any case; if the connection breaks, the lock is claimed again.
    """

    def __init__(self, catalogue: Catalogue, *, alone: bool) -> None:
        self._catalogue = catalogue
        shared = "" if alone else "_shared"
        self._claim = text(f"SELECT pg_try_advisory_lock{shared}({_LOCK})")
        self.session: AsyncConnection | None = None

    async def hold(self) -> None:
        """Claim the lock, unless it is held; `NotAlone` if another replica has it."""
        if self.session is not None and await self._is_open(self.session):
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
        session, self.session = self.session, None
        if session is not None:
            with suppress(SQLAlchemyError, OSError):
                await session.invalidate()  # back in the pool it would keep the lock
                await session.close()

    async def _is_open(self, session: AsyncConnection) -> bool:
        try:
            await session.execute(text("SELECT 1"))
        except (TimeoutError, SQLAlchemyError, OSError):
            await self.close()
            return False
        return True
