"""A client of one Redis server: it connects when it is needed, and anew after a loss."""

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

    The deadline of the system bounds every call, connecting included.
    """

    def __init__(self, config: SystemConfig, scripts: Sequence[Script]) -> None:
        self._config = config
        self._scripts = scripts
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[Connection] | None = None
        self._closed = False

    async def execute(self, commands: Sequence[bytes], *, writes: bool = False) -> list[Any]:
        """Send commands in one piece; return their replies, or raise the first error of them.

        Reads are tried once more when the connection is lost; writes never are, for they may have
        taken effect. A script that the server does not hold is loaded and called again.
        """
        deadline = monotonic() + self._config.deadline_s
        connection = self._connection
        if writes and connection is not None and not connection.lost:
            # There is no second attempt, and one coroutine less to be woken.
            try:
                replies = await connection.request(commands, deadline)
            except ConnectionLost as lost:
                raise self._error_of_loss(lost, writes=True) from None
        else:
            replies = await self._exchange(commands, deadline, writes=writes)
        for reply in replies:
            if isinstance(reply, StoreError):
                return await self._load_and_repeat(commands, replies, deadline, writes=writes)
        return replies

    def open(self) -> None:
        """Let connections be made again after a `close`."""
        self._closed = False

    async def close(self) -> None:
        """Close the connection, and make none for reads that are tried once more."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            # A connection made a moment ago is not handed over yet.
            await asyncio.wait({self._connecting})
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _exchange(
        self, commands: Sequence[bytes], deadline: float, *, writes: bool
    ) -> list[Any]:
        tries = 1 if writes else 2  # a write that was sent may have taken effect
        while True:
            tries -= 1
            try:
                connection = self._connection
                if connection is None or connection.lost:
                    connection = await self._connected(deadline)
                return await connection.request(commands, deadline)
            except ConnectionLost as lost:
                error = self._error_of_loss(lost, writes=writes)
                repeatable = isinstance(error, StoreUnavailable)
                if not repeatable or not tries or monotonic() >= deadline:
                    raise error from None
            except StoreUnavailable:
                if not tries or monotonic() >= deadline:
                    raise

    async def _load_and_repeat(
        self, commands: Sequence[bytes], replies: list[Any], deadline: float, *, writes: bool
    ) -> list[Any]:
        # An unknown script has done nothing, so a write may be repeated as well.
        forgotten = [i for i, reply in enumerate(replies) if isinstance(reply, ScriptUnknown)]
        if forgotten:
            loads = [script.load for script in self._scripts]
            calls = [commands[i] for i in forgotten]
            repeated = await self._exchange([*loads, *calls], deadline, writes=writes)
            for i, reply in zip(forgotten, repeated[len(loads) :], strict=True):
                replies[i] = reply
        errors = [reply for reply in replies if isinstance(reply, StoreError)]
        if errors and writes and len(errors) < len(replies):
            raise StoreTimeout(f"{self._config.name} has done a part of the writes") from errors[0]
        if errors:
            raise errors[0]
        return replies

    async def _connected(self, deadline: float) -> Connection:
        """Wait for the one attempt to connect that all callers share."""
        if self._closed:
            raise StoreUnavailable(f"{self._config.name}: the store was closed")
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect())
            self._connecting.add_done_callback(self._on_connected)
        left = max(deadline - monotonic(), 0.0)
        # Unlike `wait_for`, `wait` does not cancel the attempt, which other callers share.
        done, _ = await asyncio.wait({self._connecting}, timeout=left)
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

    def _error_of_loss(self, lost: ConnectionLost, *, writes: bool) -> StoreError:
        name, deadline_s = self._config.name, self._config.deadline_s
        if not lost.sent:
            return StoreUnavailable(f"{name}: the connection was lost before the call")
        late = isinstance(lost, TimeoutError)
        text = f"{name} did not answer in {deadline_s:g} s" if late else f"{name}: {lost}"
        if writes:
            return StoreTimeout(f"{text}; the write may or may not have taken effect")
        return StoreTimeout(text) if late else StoreUnavailable(text)


def _driver_of(config: SystemConfig) -> AbstractConnection:
    options: dict[str, Any] = dict(parse_url(config.url))
    make = options.pop("connection_class", DriverConnection)
    options |= {
        "protocol": 2,
        "socket_timeout": config.deadline_s,
        "socket_connect_timeout": config.deadline_s,
    }
    driver: AbstractConnection = make(**options)
    return driver
