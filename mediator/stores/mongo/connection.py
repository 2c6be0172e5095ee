"""Connections borrowed from the driver for commands on single records.

For each command the driver selects a server, takes a connection from its pool under several locks,
and starts two tasks and a timer to read the reply: three quarters of the processor time of a point
read. Here a connection is borrowed from the driver's pool for a second, and commands follow each
other on it; deadlines are the caller's (`errors.guarded`). The driver still finds the primary,
authenticates, and is notified of every failure.

This uses internals of the driver, because its public interface has no cheaper way; therefore the
driver's minor version is pinned, and `tests/conformance/mongo/test_mongo_connections.py` tests it.
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager
from time import monotonic
from typing import Any, Final

from pymongo import AsyncMongoClient
from pymongo.asynchronous.pool import AsyncConnection
from pymongo.errors import DocumentTooLarge, OperationFailure, PyMongoError
from pymongo.helpers_shared import _check_command_response
from pymongo.message import _COMMAND_OVERHEAD, _op_msg, _OpMsg
from pymongo.network_layer import PyMongoProtocol

from mediator.base.concurrency import end
from mediator.stores.mongo.errors import as_store_error
from mediator.stores.port import SystemConfig

__all__ = ["DriverConnections"]

_LOAN_S: Final = 1.0
"""The driver also checks after a second whether a connection is still usable."""

_RESERVED: Final = 2
"""Connections reserved in the pool for cursors and bulk writes."""

_Client = AsyncMongoClient[dict[str, Any]]


class _Connection:
    """A borrowed connection, for one command at a time; `is_reusable`: for several in turn."""

    def __init__(
        self,
        loan: AbstractAsyncContextManager[AsyncConnection],
        connection: AsyncConnection,
        *,
        is_reusable: bool,
    ) -> None:
        self._loan = loan
        self._connection = connection
        self.is_reusable = is_reusable
        self._until = monotonic() + _LOAN_S

    @property
    def is_due(self) -> bool:
        """Whether it has to be returned."""
        return monotonic() > self._until or self._connection.conn_closed()

    async def send(
        self, client: _Client, database: str, commands: Sequence[MutableMapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """Send commands and return the replies, like `AsyncConnection.command`.

        The server executes them one after the other.
        """
        connection, options = self._connection, client.codec_options
        packed = [_op_msg(0, command, database, None, options) for command in commands]
        for _, _, size, _ in packed:
            if size > connection.max_bson_size + _COMMAND_OVERHEAD:
                raise DocumentTooLarge(f"a command of {size} bytes is too large for the server")
        try:
            protocol = connection.conn.get_conn
            assert isinstance(protocol, PyMongoProtocol)
            await protocol.write(b"".join(message for _, message, _, _ in packed))
            max_size = connection.max_message_size
            messages = [(await protocol.read(number, max_size))[0] for number, _, _, _ in packed]
        except BaseException as error:  # noqa: BLE001 - closes and re-raises, or raises the driver's
            await connection._raise_connection_failure(error)  # noqa: SLF001 - see above
        replies = [
            _OpMsg.unpack(data).unpack_response(codec_options=options)[0] for data in messages
        ]
        for reply in replies:
            _check_command_response(reply, connection.max_wire_version)
        return replies

    async def end(self, error: BaseException | None = None) -> None:
        """Return the connection; after an error the driver marks its server as unknown."""
        kind, traceback = (type(error), error.__traceback__) if error else (None, None)
        await self._loan.__aexit__(kind, error, traceback)


class DriverConnections:
    """Connections borrowed from the pool of one client.

    Args:
        client: The driver's client.
        config: The size of its pool, and the name of the system.

    Attributes:
        lent: Number of connections borrowed for more than one command.
        idle: The idle ones among them.
        retiring: The task that returns idle connections, if there are any.
    """

    def __init__(self, client: _Client, config: SystemConfig) -> None:
        self._client = client
        self._system = config.name
        self._max_lent = config.pool_size - _RESERVED
        self.lent = 0
        self.idle: list[_Connection] = []
        self.retiring: asyncio.Task[None] | None = None

    async def command(self, database: str, command: MutableMapping[str, Any]) -> dict[str, Any]:
        """Run a command on the primary; see `commands`."""
        [reply] = await self.commands(database, (command,))
        return reply

    async def commands(
        self, database: str, commands: Sequence[MutableMapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """Run commands on the primary one after the other, in one round trip.

        All are executed, even if one fails; then its error is raised, as by the driver's `command`.

        Raises:
            StoreError: There is no connection: nothing was sent.
        """
        connection = await self._idle_connection()
        try:
            replies = await connection.send(self._client, database, commands)
        except (OperationFailure, DocumentTooLarge):
            await self._keep(connection)
            raise
        except BaseException as error:
            await self._end(connection, error)
            raise
        await self._keep(connection)
        return replies

    async def reach(self) -> None:
        """Make sure that a connection is idle, unless the maximum is in use.

        Raises:
            StoreError: The server cannot be reached.
        """
        if self.lent < self._max_lent:
            await self._keep(await self._idle_connection())

    async def close(self) -> None:
        self._max_lent = 0
        if self.retiring is not None:
            await end([self.retiring])
        while self.idle:
            await self._end(self.idle.pop())

    async def _idle_connection(self) -> _Connection:
        while self.idle:
            connection = self.idle.pop()
            if not connection.is_due:
                return connection
            await self._end(connection)
        return await self._borrow()

    async def _borrow(self) -> _Connection:
        # The last connections serve one command: cursors and bulk writes would wait for a loan.
        is_reusable = self.lent < self._max_lent
        self.lent += is_reusable
        try:
            loan = await self._client._conn_for_writes(None, "command")  # noqa: SLF001 - see above
            return _Connection(loan, await loan.__aenter__(), is_reusable=is_reusable)
        except BaseException as error:
            self.lent -= is_reusable
            if isinstance(error, PyMongoError):
                raise as_store_error(self._system, error) from error
            raise

    async def _keep(self, connection: _Connection) -> None:
        if not (connection.is_reusable and self._max_lent):
            await self._end(connection)
            return
        self.idle.append(connection)
        if self.retiring is None:
            self.retiring = asyncio.create_task(self._retire())

    async def _retire(self) -> None:
        """Return connections that stay idle."""
        while self.idle:
            await asyncio.sleep(_LOAN_S)
            due = [connection for connection in self.idle if connection.is_due]
            self.idle = [connection for connection in self.idle if connection not in due]
            for connection in due:
                await self._end(connection)
        self.retiring = None

    async def _end(self, connection: _Connection, error: BaseException | None = None) -> None:
        self.lent -= connection.is_reusable
        await connection.end(error)
