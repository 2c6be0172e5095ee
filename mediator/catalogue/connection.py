"""A connection pool to the catalogue whose failures are `Unavailable`, whatever the driver says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
from sqlalchemy import make_url, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.schema import CreateSchema

from mediator.catalogue.tables import SCHEMA, epoch, metadata
from mediator.errors import Unavailable

__all__ = ["Catalogue"]

NAME = "catalogue"
DEADLINE_S = 5.0
_CREATION_LOCK = 7_306_842_011_356


class Catalogue:
    """The catalogue's database, opened.

    Args:
        url: ``postgresql://…``; may carry a password, never shown.
    """

    def __init__(self, url: str) -> None:
        self._engine: AsyncEngine = create_async_engine(
            make_url(url).set(drivername="postgresql+asyncpg"),
            pool_size=4,
            max_overflow=4,
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

    async def open(self) -> None:
        """Create what is missing; replicas may do so at the same time."""
        async with self.begin() as connection:
            await connection.execute(text(f"SELECT pg_advisory_xact_lock({_CREATION_LOCK})"))
            await connection.execute(CreateSchema(SCHEMA, if_not_exists=True))
            await connection.run_sync(metadata.create_all)
            row = insert(epoch).values(only=1, epoch=0).on_conflict_do_nothing()
            await connection.execute(row)

    async def close(self) -> None:
        """Release every connection."""
        await self._engine.dispose()

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

    async def session(self) -> AsyncConnection:
        """Open a connection that the caller keeps and closes, without transactions."""
        return await self._engine.execution_options(isolation_level="AUTOCOMMIT").connect()

    @asynccontextmanager
    async def failing(self) -> AsyncIterator[None]:
        """Raise `Unavailable` for whatever the driver raises in the block."""
        try:
            yield
        except (TimeoutError, SQLAlchemyError, OSError) as error:
            raise Unavailable("The catalogue does not answer.", system=NAME) from error


def _dumps(value: Any) -> str:
    return orjson.dumps(value).decode()
