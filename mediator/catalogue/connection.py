"""A connection pool to the catalogue, and its errors: `Unavailable`, or `Invalid` for a value."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from select import POLLIN, poll
from typing import Any, Final, TypeVar

import asyncpg
import orjson
from sqlalchemy import Connection, CursorResult, Executable, event, make_url, select, text
from sqlalchemy.dialects.postgresql.asyncpg import AsyncAdapt_asyncpg_dbapi
from sqlalchemy.exc import DBAPIError, DisconnectionError, SQLAlchemyError, StatementError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from mediator.base.errors import Conflict, Invalid, MediatorError, Unavailable
from mediator.catalogue.revisions import Compatibility, Revisions
from mediator.stores.postgres.connection import Pool

__all__ = ["Catalogue"]

NAME = "catalogue"
DEADLINE_S = 5.0
POOL_SIZE: Final = 8

_POLL_S: Final = 0.05
# A replica that stalls must not keep a lock for ever.
_LOCK: Final = text("""
SELECT pg_try_advisory_xact_lock(hashtextextended(:name, 0)),
    set_config('idle_in_transaction_session_timeout', '60s', true)
""")

_CONNECTION_LOST: Final = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.InterfaceError,
    ConnectionError,
)
"""Errors of one connection; another one may work."""

_FAILURES: Final = (
    SQLAlchemyError,
    AsyncAdapt_asyncpg_dbapi.Error,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)
"""Errors of the driver, of SQLAlchemy, and of its dialect, which raises its own on opening a
connection. A timeout is an OSError."""

_REFUSALS: Final = ("22", "54")
"""Classes of SQLSTATE: data that PostgreSQL cannot store, and limits that a statement exceeds."""

T = TypeVar("T")


class Catalogue:
    """The catalogue's database, by its ``postgresql://…``; `migrate` lets `open` upgrade it.

    Methods that run statements raise `Unavailable` if it does not answer, and `Invalid` for a value
    that it can never store.
    """

    def __init__(
        self, url: str, *, migrate: bool = True, revisions: Revisions | None = None
    ) -> None:
        self._url = make_url(url).set(drivername="postgresql+asyncpg")
        self._migrate = migrate
        self.revisions = revisions or Revisions()
        self.engine = create_async_engine(
            self._url,
            pool_size=4,
            max_overflow=POOL_SIZE - 4,
            pool_timeout=DEADLINE_S,
            json_serializer=_dumps,
            json_deserializer=orjson.loads,
            connect_args={
                "timeout": DEADLINE_S,
                "command_timeout": DEADLINE_S,
                # The catalogue must be durable even where stores may lose a second.
                "server_settings": {"synchronous_commit": "on"},
            },
        )
        event.listen(self.engine.sync_engine, "checkout", _check_open)
        self._single = self.engine.execution_options(isolation_level="AUTOCOMMIT")
        self._statements = Pool(self._connection, POOL_SIZE)

    async def open(self) -> None:
        """Upgrade the tables if they are behind; replicas can do so at the same time.

        Raises:
            CatalogueMismatch: This code cannot work with the present tables.
            Unavailable: The catalogue does not answer.
        """
        compatibility = await self.run_sync(self.revisions.compatibility)
        if compatibility in (Compatibility.CURRENT, Compatibility.AHEAD):
            return
        if self._migrate and compatibility is not Compatibility.INCOMPATIBLE:
            await self.migrate(self.revisions.upgrade)
        else:
            await self.run_sync(self.revisions.check)  # which raises the reason

    async def run_sync(self, function: Callable[[Connection], T]) -> T:
        """Run a function in its own transaction."""
        async with self.begin() as connection:
            return await connection.run_sync(function)

    async def migrate(self, step: Callable[[Connection], None]) -> None:
        """Change the tables in one transaction, without a time limit; raises `Unavailable`."""
        engine = create_async_engine(
            self._url, poolclass=NullPool, connect_args={"timeout": DEADLINE_S}
        )
        async with self.translating_errors(), engine.begin() as connection:
            try:
                await connection.run_sync(step)
            except DBAPIError as error:
                detail = f"The tables of the catalogue cannot be changed: {error.orig}"
                raise Unavailable(detail, system=NAME) from error

    async def close(self) -> None:
        await self.engine.dispose()
        await self._statements.close()

    async def ping(self) -> None:
        """Raise `Unavailable` if the catalogue does not answer."""
        await self.execute(select(1))

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection]:
        """Open a transaction; it is committed unless the block raises. Raises `Unavailable`."""
        async with self.translating_errors(), self.engine.begin() as connection:
            yield connection

    @asynccontextmanager
    async def locked(self, name: str, within_s: float) -> AsyncIterator[AsyncConnection]:
        """Exclude others that lock this name, for a minute at most, while the block runs.

        It is not a fence: a holder that has lost its lock continues.

        Raises:
            Conflict: Another holder has had it for `within_s` seconds.
            Unavailable: The catalogue does not answer.
        """
        async with self.translating_errors():
            connection = await self.engine.connect()
        try:
            async with self.translating_errors():
                await _lock(connection, name, within_s)
            yield connection
        finally:
            with suppress(*_FAILURES):  # the session has ended, and the lock with it
                await connection.close()

    async def execute(self, statement: Executable) -> CursorResult[Any]:
        """Run one statement, in its own transaction; raises `Unavailable`."""
        async with self.translating_errors(), self._single.connect() as connection:
            return await connection.execute(statement)

    async def fetch(self, statement: str, *arguments: Any, retry: bool = False) -> Sequence[Any]:
        """Run a constant statement in one round trip, without SQLAlchemy; raises `Unavailable`.

        Args:
            statement: Its text, which each connection prepares once.
            arguments: Its parameters; JSON as text, which comes back as values.
            retry: Whether it can be sent twice: the server may have closed an idle connection.
        """
        try:
            try:
                return await self._fetch(statement, arguments)
            except _CONNECTION_LOST:
                # A retry may run it twice: only the caller knows whether that is harmless.
                if not retry:
                    raise
            return await self._fetch(statement, arguments)
        except _FAILURES as error:  # without the generator of `translating_errors`
            raise _translate(error) from error

    async def _fetch(self, statement: str, arguments: Sequence[Any]) -> Sequence[Any]:
        async with asyncio.timeout(DEADLINE_S):
            rows: Sequence[Any] = await self._statements.use(
                lambda connection: connection.fetch(statement, *arguments)
            )
        return rows

    async def _connection(self) -> Any:
        """Open a connection as SQLAlchemy does, and return the driver's connection."""
        connection = await self.engine.raw_connection()
        driver_connection = connection.driver_connection
        # Otherwise it would return to SQLAlchemy's pool, which would use it as well.
        connection.detach()
        return driver_connection

    async def session(self) -> AsyncConnection:
        """Open a connection that the caller keeps and closes, without transactions."""
        return await self._single.connect()

    @asynccontextmanager
    async def translating_errors(self) -> AsyncIterator[None]:
        try:
            yield
        except _FAILURES as error:
            raise _translate(error) from error


async def _lock(connection: AsyncConnection, name: str, within_s: float) -> None:
    """Poll for the lock; a statement that waits for it would exceed its time limit."""
    loop = asyncio.get_running_loop()
    until = loop.time() + within_s
    while not (await connection.execute(_LOCK, {"name": name})).scalar_one():
        if loop.time() >= until:
            raise Conflict(f"Another replica is at work on the {name}; try again.")
        await asyncio.sleep(_POLL_S)


def _check_open(connection: Any, record: object, proxy: object) -> None:  # noqa: ARG001 - an event's
    """Have the pool replace a connection that its server has closed.

    Asking the server takes three round trips, more than most of our transactions. But the only
    message that a server sends to an unused connection, read or not, is that it ends.
    """
    driver = connection.driver_connection
    if driver.is_closed() or _is_readable(driver._transport):  # noqa: SLF001 - it has no other name
        raise DisconnectionError


def _is_readable(transport: asyncio.BaseTransport) -> bool:
    poller = poll()
    poller.register(transport.get_extra_info("socket").fileno(), POLLIN)
    return bool(poller.poll(0))


def _translate(error: BaseException) -> MediatorError:
    cause = error.orig if isinstance(error, StatementError) else error
    state = str(getattr(cause, "sqlstate", None) or "")
    # Encoding a parameter raises the other two: nothing was sent.
    if state.startswith(_REFUSALS) or isinstance(cause, TypeError | ValueError):
        return Invalid("The catalogue cannot keep a value of this request.")
    return Unavailable("The catalogue does not answer.", system=NAME)


def _dumps(value: Any) -> str:
    return orjson.dumps(value).decode()
