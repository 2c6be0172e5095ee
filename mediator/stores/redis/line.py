"""A line to the server: a connection that is made when it is needed, and made again when lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from redis.asyncio.connection import AbstractConnection, Connection, parse_url

from mediator.base.clock import Clock
from mediator.stores.port import StoreError, StoreUnavailable, SystemConfig
from mediator.stores.redis.commands import command
from mediator.stores.redis.connection import Wire
from mediator.stores.redis.failures import ScriptUnknown, error_of

__all__ = ["Line"]


class Line:
    """Sends packed commands and brings their replies.

    Args:
        config: The system; its deadline bounds every call, connecting included.
        clock: Tells the time of calls.
        scripts: Texts of the scripts that are called by their names.
    """

    def __init__(self, config: SystemConfig, clock: Clock, scripts: Sequence[str]) -> None:
        self._config = config
        self._clock = clock
        self._scripts = scripts
        self._wire: Wire | None = None
        self._connecting: asyncio.Task[Wire] | None = None
        self._closed = False

    async def ask(self, commands: Sequence[bytes], *, writes: bool = False) -> list[Any]:
        """Send commands in one piece; returns their replies, or raises the first error of them.

        Reads are tried once more when the connection is lost; writes never are, for they may have
        taken effect. A script that the server has forgotten is loaded and called again.
        """
        started = self._clock.monotonic()
        wire = self._wire
        if writes and wire is not None and not wire.lost:
            # There is no second attempt, and a coroutine less to be woken.
            replies = await wire.request(commands, started, writes=True)
        else:
            replies = await self._attempt(commands, started, writes)
        for reply in replies:
            if isinstance(reply, StoreError):
                return await self._settle(commands, replies, started, writes)
        return replies

    def open(self) -> None:
        """Let connections be made again after a `close`."""
        self._closed = False

    async def close(self) -> None:
        """Close the connection, and make none for reads that are tried once more."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            # One that was made a moment ago is not handed over yet.
            await asyncio.wait({self._connecting})
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    async def _attempt(self, commands: Sequence[bytes], started: float, writes: bool) -> list[Any]:
        tries = 1 if writes else 2
        while True:
            try:
                wire = self._wire
                if wire is None or wire.lost:
                    wire = await self._connected(started)
                return await wire.request(commands, started, writes=writes)
            except StoreUnavailable:
                tries -= 1
                if not tries or self._left(started) <= 0:
                    raise

    async def _settle(
        self, commands: Sequence[bytes], replies: list[Any], started: float, writes: bool
    ) -> list[Any]:
        forgotten = [i for i, reply in enumerate(replies) if isinstance(reply, ScriptUnknown)]
        if forgotten:
            loads = [command("SCRIPT", "LOAD", text) for text in self._scripts]
            again = await self._attempt(
                [*loads, *(commands[i] for i in forgotten)], started, writes
            )
            for i, reply in zip(forgotten, again[len(loads) :], strict=True):
                replies[i] = reply
        for reply in replies:
            if isinstance(reply, StoreError):
                raise reply
        return replies

    def _left(self, started: float) -> float:
        return started + self._config.deadline_s - self._clock.monotonic()

    async def _connected(self, started: float) -> Wire:
        """Wait for the one attempt to connect that all callers share."""
        if self._closed:
            raise StoreUnavailable(f"{self._config.name}: the store was closed")
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect())
            self._connecting.add_done_callback(self._connection_made)
        done, _ = await asyncio.wait({self._connecting}, timeout=max(self._left(started), 0.0))
        if not done:
            raise StoreUnavailable(f"{self._config.name} cannot be reached in time")
        task = done.pop()
        if task.cancelled():
            raise StoreUnavailable(f"{self._config.name}: the store was closed")
        return task.result()

    def _connection_made(self, task: asyncio.Task[Wire]) -> None:
        self._connecting = None
        if not task.cancelled() and task.exception() is None:
            self._wire = task.result()

    async def _connect(self) -> Wire:
        try:
            connection = _connection_to(self._config)
        except Exception as error:  # noqa: BLE001 - the driver's parser lets many kinds through
            raise error_of(error, self._config.name) from None
        try:
            await connection.connect()  # type: ignore[no-untyped-call]  # the driver is not typed here
            return Wire(connection, self._config.name, self._config.deadline_s, self._clock)
        except BaseException as error:
            await connection.disconnect(nowait=True)
            if isinstance(error, Exception):
                raise error_of(error, self._config.name) from None
            raise


def _connection_to(config: SystemConfig) -> AbstractConnection:
    options: dict[str, Any] = dict(parse_url(config.url))
    make = options.pop("connection_class", Connection)
    connection: AbstractConnection = make(
        **options
        | {
            "protocol": 2,
            "socket_timeout": config.deadline_s,
            "socket_connect_timeout": config.deadline_s,
        }
    )
    return connection
