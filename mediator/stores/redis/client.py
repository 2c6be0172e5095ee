"""A client of one Redis server: it connects on demand, and reconnects after a loss."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Any

from redis.asyncio.connection import AbstractConnection, parse_url
from redis.asyncio.connection import Connection as DriverConnection

from mediator.stores.port import StoreError, StoreTimeout, StoreUnavailable, SystemConfig
from mediator.stores.redis.errors import ScriptUnknown, error_of, error_of_reply
from redis_connection.connection import Connection, ConnectionLost, open_connection
from redis_connection.scripts import Script

__all__ = ["CommandClient"]


class CommandClient:
    """Sends packed commands of many callers over one connection, and returns their replies.

    The deadline of the system bounds every call, including connecting.
    """

    def __init__(self, config: SystemConfig, scripts: Sequence[Script]) -> None:
        self._config = config
        self._scripts = scripts
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[Connection] | None = None
        self._closed = False

    async def execute(self, commands: Sequence[bytes], *, writes: bool = False) -> list[Any]:
        """Send commands in one request; return their replies, or raise the first error.

        Reads are retried once when the connection is lost; writes are never retried, because they
        may have taken effect. A script that is unknown to the server is loaded and called again.
        """
        deadline = monotonic() + self._config.deadline_s
        connection = self._connection
        if writes and connection is not None and not connection.lost:
            # Writes have no second attempt; this path saves waking one coroutine.
            try:
                replies = await connection.request(commands, deadline)
            except ConnectionLost as loss:
                raise self._error_of_loss(loss, writes=True) from None
        else:
            replies = await self._exchange(commands, deadline, writes=writes)
        for reply in replies:
            if isinstance(reply, StoreError):
                return await self._load_and_retry(commands, replies, deadline, writes=writes)
        return replies

    def open(self) -> None:
        """Permit connections again after `close`."""
        self._closed = False

    async def close(self) -> None:
        """Close the connection, and refuse to reconnect for retried reads."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            # A new connection may not be handed over yet.
            await asyncio.wait({self._connecting})
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _exchange(
        self, commands: Sequence[bytes], deadline: float, *, writes: bool
    ) -> list[Any]:
        attempts = 1 if writes else 2  # a write that was sent may have taken effect
        while True:
            attempts -= 1
            try:
                connection = self._connection
                if connection is None or connection.lost:
                    connection = await self._shared_connection(deadline)
                return await connection.request(commands, deadline)
            except ConnectionLost as loss:
                error = self._error_of_loss(loss, writes=writes)
                repeatable = isinstance(error, StoreUnavailable)
                if not repeatable or not attempts or monotonic() >= deadline:
                    raise error from None
            except StoreUnavailable:
                if not attempts or monotonic() >= deadline:
                    raise

    async def _load_and_retry(
        self, commands: Sequence[bytes], replies: list[Any], deadline: float, *, writes: bool
    ) -> list[Any]:
        # An unknown script had no effect, so writes can also be retried.
        unknown = [i for i, reply in enumerate(replies) if isinstance(reply, ScriptUnknown)]
        if unknown:
            loads = [script.load for script in self._scripts]
            calls = [commands[i] for i in unknown]
            retried = await self._exchange([*loads, *calls], deadline, writes=writes)
            for i, reply in zip(unknown, retried[len(loads) :], strict=True):
                replies[i] = reply
        errors = [reply for reply in replies if isinstance(reply, StoreError)]
        if errors and writes and len(errors) < len(replies):
            raise StoreTimeout(
                f"{self._config.name} has applied only some of the writes"
            ) from errors[0]
        if errors:
            raise errors[0]
        return replies

    async def _shared_connection(self, deadline: float) -> Connection:
        """Await the connection attempt that all callers share."""
        if self._closed:
            raise StoreUnavailable(f"{self._config.name}: the store was closed")
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect())
            self._connecting.add_done_callback(self._on_connected)
        remaining_s = max(deadline - monotonic(), 0.0)
        # Unlike `wait_for`, `wait` does not cancel the attempt, which other callers share.
        done, _ = await asyncio.wait({self._connecting}, timeout=remaining_s)
        if not done:
            raise StoreUnavailable(f"{self._config.name} cannot be reached in time")
        task = done.pop()
        if task.cancelled():
            raise StoreUnavailable(f"{self._config.name}: the store was closed")
        return task.result()

    def _on_connected(self, task: asyncio.Task[Connection]) -> None:
        self._connecting = None
        if not task.cancelled() and task.exception() is None:
            self._connection = task.result()

    async def _connect(self) -> Connection:
        try:
            return await open_connection(_driver_of(self._config), error_of_reply)
        except Exception as error:  # noqa: BLE001 - the driver's parser lets many kinds through
            raise error_of(error, self._config.name) from None

    def _error_of_loss(self, loss: ConnectionLost, *, writes: bool) -> StoreError:
        name, deadline_s = self._config.name, self._config.deadline_s
        if not loss.sent:
            return StoreUnavailable(f"{name}: the connection was lost before the call")
        timed_out = isinstance(loss, TimeoutError)
        text = f"{name} did not answer in {deadline_s:g} s" if timed_out else f"{name}: {loss}"
        if writes:
            return StoreTimeout(f"{text}; the write may or may not have taken effect")
        return StoreTimeout(text) if timed_out else StoreUnavailable(text)


def _driver_of(config: SystemConfig) -> AbstractConnection:
    options: dict[str, Any] = dict(parse_url(config.url))
    connection_class = options.pop("connection_class", DriverConnection)
    options |= {
        "protocol": 2,
        "socket_timeout": config.deadline_s,
        "socket_connect_timeout": config.deadline_s,
    }
    driver: AbstractConnection = connection_class(**options)
    return driver
