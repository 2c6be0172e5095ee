"""A connection pool to the catalogue whose failures are `Unavailable`, whatever the driver says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import asyncpg
import orjson
from sqlalchemy import Connection, make_url, select
from sqlalchemy.dialects.postgresql.asyncpg import AsyncAdapt_asyncpg_dbapi
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from mediator.base.errors import Unavailable
from mediator.catalogue.revisions import Revisions, Standing
from mediator.stores.postgres.connection import Pool

__all__ = ["Catalogue"]

NAME = "catalogue"
DEADLINE_S = 5.0
POOL_SIZE: Final = 8

_LOST: Final = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.InterfaceError,
    ConnectionError,
)
"""The connection is gone, and perhaps no other."""

_FAILURES: Final = (
    SQLAlchemyError,
    AsyncAdapt_asyncpg_dbapi.Error,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)
"""What the driver raises, by itself or through SQLAlchemy; the dialect has errors of its own, for
when a connection is opened. A timeout is an OSError."""

T = TypeVar("T")


class Catalogue:
    """The catalogue's database, opened.

    Args:
        url: ``postgresql://…``; may carry a password, never shown.
        migrate: Whether `open` upgrades the tables.
        revisions: What this code knows of their revisions.
    """

    def __init__(
        self, url: str, *, migrate: bool = True, revisions: Revisions | None = None
    ) -> None:
        self._url = make_url(url).set(drivername="postgresql+asyncpg")
        self._migrate = migrate
        self.revisions = revisions or Revisions()
        self._engine = create_async_engine(
            self._url,
            pool_size=4,
            max_overflow=POOL_SIZE - 4,
            pool_timeout=DEADLINE_S,
            pool_pre_ping=True,
            json_serializer=_dumps,
            json_deserializer=orjson.loads,
            connect_args={
                "timeout": DEADLINE_S,
                "command_timeout": DEADLINE_S,
                # What it holds must survive whatever the stores' own setting loses.
                "server_settings": {"synchronous_commit": "on"},
            },
        )
        self._statements = Pool(self._connection, POOL_SIZE)

    async def open(self) -> None:
        """Upgrade the tables if they are behind; replicas may do so at the same time.

        Raises:
            CatalogueMismatch: This code cannot work with the tables there are.
            Unavailable: The catalogue does not answer.
        """
        standing = await self.told(self.revisions.standing)
        if self._migrate and standing in (Standing.EMPTY, Standing.BEHIND):
            await self.migrate(self.revisions.upgrade)
        else:
            await self.told(self.revisions.check)

    async def told(self, ask: Callable[[Connection], T]) -> T:
        """Return what a function finds out in a transaction of its own."""
        async with self.begin() as connection:
            return await connection.run_sync(ask)

    async def migrate(self, step: Callable[[Connection], None]) -> None:
        """Change the tables in one transaction, which takes the time that it takes.

        Raises:
            CatalogueMismatch: See the step.
            Unavailable: The catalogue does not answer, or refuses a statement.
        """
        engine = create_async_engine(
            self._url, poolclass=NullPool, connect_args={"timeout": DEADLINE_S}
        )
        async with self.failing(), engine.begin() as connection:
            try:
                await connection.run_sync(step)
            except DBAPIError as error:
                detail = f"The tables of the catalogue cannot be changed: {error.orig}"
                raise Unavailable(detail, system=NAME) from error

    async def close(self) -> None:
        """Release every connection."""
        await self._engine.dispose()
        await self._statements.close()

    async def ping(self) -> None:
        """Return if the catalogue answers; raises `Unavailable` otherwise."""
        async with self.begin() as connection:
            await connection.execute(select(1))

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection]:
        """Open a transaction; it is committed unless the block raises.

        Raises:
            Unavailable: The catalogue does not answer.
        """
        async with self.failing(), self._engine.begin() as connection:
            yield connection

    async def fetch(self, statement: str, *arguments: Any, again: bool = False) -> Sequence[Any]:
        """Run one statement, a transaction by itself, in one round trip.

        It goes to the driver as it is: whoever waits for it writes over several systems.

        Args:
            statement: Its text, a constant; a connection prepares it once.
            arguments: Its parameters; JSON as text, which comes back as values.
            again: Whether it may be sent twice: the server may have closed a connection that was
                kept.

        Returns:
            Its rows, by the names of their columns.

        Raises:
            Unavailable: The catalogue does not answer.
        """
        try:
            try:
                return await self._fetch(statement, arguments)
            except _LOST:
                if not again:
                    raise
            return await self._fetch(statement, arguments)
        except _FAILURES as error:  # as `failing` does, without a generator for each statement
            raise _silent() from error

    async def _fetch(self, statement: str, arguments: Sequence[Any]) -> Sequence[Any]:
        async with asyncio.timeout(DEADLINE_S):
            rows: Sequence[Any] = await self._statements.use(
                lambda connection: connection.fetch(statement, *arguments)
            )
        return rows

    async def _connection(self) -> Any:
        """Open a connection as SQLAlchemy does, and take the driver's own out of it."""
        connection = await self._engine.raw_connection()
        own = connection.driver_connection
        connection.detach()
        return own

    async def session(self) -> AsyncConnection:
        """Open a connection that the caller keeps and closes, without transactions."""
        return await self._engine.execution_options(isolation_level="AUTOCOMMIT").connect()

    @asynccontextmanager
    async def failing(self) -> AsyncIterator[None]:
        """Raise `Unavailable` for whatever the driver raises in the block."""
        try:
            yield
        except _FAILURES as error:
            raise _silent() from error


def _silent() -> Unavailable:
    return Unavailable("The catalogue does not answer.", system=NAME)


def _dumps(value: Any) -> str:
    return orjson.dumps(value).decode()
