"""Sessions with the settings that our statements need, and a connection pool.

asyncpg's pool wraps each call, releases a connection in a separate task and resets it: that took
longer than the statement (about 80 us without, 150 us with the reset, against 60 us for a SELECT by
key). Our sessions keep no state between statements, so they need no reset.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeVar

import asyncpg

from mediator.stores.port import SystemConfig
from mediator.stores.postgres.errors import FAILURES, as_store_error

__all__ = ["Pool", "PoolExhausted", "connect", "connect_to_search", "transaction"]

_STATEMENTS: Final = 512
_SEARCHES: Final = 64
"""Users decide on the shapes of searches, so caching many is of little use."""
_MAX_SEARCH_BYTES: Final = 2**14
"""Maximum size of a cached search statement: the server's plan is many times as large."""

_DURABILITY: Final = {"full": "on", "second": "off"}


async def connect(config: SystemConfig) -> Any:
    """Open a connection; raises `StoreError` before anything is sent on it."""
    return await _open_session(config, _settings(config), _STATEMENTS)


async def connect_to_search(config: SystemConfig) -> Any:
    """Open a read-only connection that plans statements for their arguments; see `connect`."""
    settings = _settings(config) | {
        "plan_cache_mode": "auto",
        "enable_seqscan": "on",
        "default_transaction_read_only": "on",
    }
    return await _open_session(config, settings, _SEARCHES, _MAX_SEARCH_BYTES)


async def _open_session(
    config: SystemConfig, settings: dict[str, str], statements: int, max_bytes: int = 0
) -> Any:
    """Open a session that caches `statements` statements of up to `max_bytes` each (0: any)."""
    try:
        return await asyncpg.connect(
            config.url,
            # The caller's deadline bounds it; asyncpg's default is a minute.
            timeout=config.deadline_s,
            statement_cache_size=statements,
            max_cached_statement_lifetime=0,
            max_cacheable_statement_size=max_bytes,
            server_settings=settings,
        )
    except FAILURES as error:
        # The cause is left out: its text can quote the URL with its password.
        raise as_store_error(config.name, error) from None


def _settings(config: SystemConfig) -> dict[str, str]:
    settings = {
        "application_name": "portolan",
        # The server cancels a statement when the client gives it up.
        "statement_timeout": f"{max(1, round(config.deadline_s * 1000))}",
        "idle_in_transaction_session_timeout": "60s",
        "timezone": "UTC",
        "jit": "off",
        # One plan for each statement. It can be made while the table is still empty, when a
        # sequential scan looks cheapest; all our statements but one use an index.
        "plan_cache_mode": "force_generic_plan",
        "enable_seqscan": "off",
    }
    if config.durability is not None:
        settings["synchronous_commit"] = _DURABILITY[config.durability]
    return settings


T = TypeVar("T")

_CLOSING_S: Final = 2.0
"""How long a server can take to cancel a statement, in seconds."""

_BROKEN = ("08", "57P")
"""Classes of SQLSTATE after which the server ends the session."""


class PoolExhausted(Exception):
    """No connection became free in time."""


@asynccontextmanager
async def transaction(connection: Any) -> AsyncIterator[None]:
    """Run a transaction.

    asyncpg's transaction always rolls back; with a silent server, that outlasts the deadline. Here
    a cancelled transaction is left open, and the pool closes its connection.
    """
    await connection.execute("BEGIN")
    try:
        yield
    except asyncpg.PostgresError:
        await connection.execute("ROLLBACK")
        raise
    await connection.execute("COMMIT")


class Pool:
    """A LIFO pool of up to `size` connections; `idle` are the unused ones."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], size: int) -> None:
        self._connect = connect
        self._slots = asyncio.Semaphore(size)
        self.idle: deque[Any] = deque()
        self._closed = False
        self._closing: set[asyncio.Task[None]] = set()

    async def use(self, work: Callable[[Any], Awaitable[T]], within_s: float | None = None) -> T:
        """Run `work` with a connection.

        A connection whose statement was cut off (cancelled, timed out) is in an unknown state
        and is not reused; after an error that the server returned, it is.

        Args:
            work: The function to run.
            within_s: How long to wait for a connection, in seconds; None: no limit.

        Raises:
            PoolExhausted: No connection became free in time.
        """
        if self.idle and not self._slots.locked():
            connection = await self._acquire()
        else:
            connection = await self._acquire_within(within_s)
        try:
            result = await work(connection)
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            broken = str(getattr(error, "sqlstate", None)).startswith(_BROKEN)
            self._release(connection, broken=broken)
            raise
        except BaseException:
            self._abort(connection)
            raise
        else:
            self._release(connection)
            return result
        finally:
            self._slots.release()

    async def _acquire_within(self, seconds: float | None) -> Any:
        try:
            async with asyncio.timeout(seconds) as waiting:
                return await self._acquire()
        except TimeoutError:
            if waiting.expired():
                raise PoolExhausted from None
            raise

    async def _acquire(self) -> Any:
        await self._slots.acquire()
        try:
            while self.idle:
                connection = self.idle.pop()
                if not connection.is_closed():
                    return connection
            return await self._connect()
        except BaseException:
            self._slots.release()
            raise

    def _release(self, connection: Any, *, broken: bool = False) -> None:
        if broken or self._closed or connection.is_in_transaction():
            connection.terminate()
        elif not connection.is_closed():
            self.idle.append(connection)

    def _abort(self, connection: Any) -> None:
        """Close a connection, and have the server cancel its statement, without waiting for either.

        A server notices a closed connection only when it replies, which can be long after. So the
        driver requests cancellation before it closes.
        """
        task = asyncio.create_task(_close_connection(connection))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close idle connections now, the others when they are released."""
        self._closed = True
        while self.idle:
            await self.idle.pop().close()
        await asyncio.gather(*self._closing)


async def _close_connection(connection: Any) -> None:
    with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        # If the server is silent, it is terminated at the timeout.
        await connection.close(timeout=_CLOSING_S)
