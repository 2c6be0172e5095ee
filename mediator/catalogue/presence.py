"""Which replicas serve an installation: each holds a lock in the catalogue as long as it lives.

A replica that must be alone holds it exclusively, all others share it, so that either finds the
other. The lock is one of a PostgreSQL session: it goes with the process, however that ends. If the
connection breaks, it is claimed anew.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from mediator.base.errors import Conflict
from mediator.catalogue.connection import Catalogue

__all__ = ["NotAlone", "Presence"]

_LOCK: Final = 7_306_842_011_357


class NotAlone(Conflict):
    """Another replica serves the installation, and one of the two has to be the only one."""


class Presence:
    """The place of this replica among the others.

    Args:
        catalogue: The catalogue.
        alone: Whether there must be no other.
    """

    def __init__(self, catalogue: Catalogue, *, alone: bool) -> None:
        self._catalogue = catalogue
        shared = "" if alone else "_shared"
        self._claim = text(f"SELECT pg_try_advisory_lock{shared}({_LOCK})")
        self._session: AsyncConnection | None = None

    async def hold(self) -> None:
        """Claim the place, unless it is held.

        Raises:
            NotAlone: It is somebody else's.
            Unavailable: The catalogue does not answer.
        """
        if self._session is not None and await self._lives(self._session):
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
        self._session = session

    async def close(self) -> None:
        """Give the place up."""
        session, self._session = self._session, None
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
