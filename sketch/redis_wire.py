"""An open connection to the sketch's Redis, on which one exchange is under way at a time.

The driver makes the connection (addresses, TLS, authentication) and its parser reads replies; the
socket is then ours, because a call of the driver takes longer than the server does for it.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import hiredis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as NotConnected
from redis.exceptions import NoScriptError, ResponseError

__all__ = ["Wire"]

_NOTHING: Final = object()


class Wire(asyncio.Protocol):
    """A connection, until it is lost.

    Args:
        connection: The driver's, connected; this takes its socket over.
        timeout_s: Longest wait for the replies of an exchange.
    """

    def __init__(self, connection: AbstractConnection, timeout_s: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(
            protocolError=hiredis.ProtocolError, replyError=_error_of, notEnoughData=_NOTHING
        )
        self._replies: list[Any] = []
        self._awaited = 0
        self._future: asyncio.Future[list[Any]] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self.lost = False
        writer = connection._writer  # noqa: SLF001 - the driver has no public way to its transport
        assert writer is not None
        self._transport = writer.transport
        self._transport.set_protocol(self)

    @property
    def idle(self) -> bool:
        """Whether an exchange may begin."""
        return self._future is None and not self.lost

    async def quiet(self) -> None:
        """Wait until no exchange is under way."""
        await self._quiet.wait()

    def post(self, packed: bytes, replies: int) -> asyncio.Future[list[Any]]:
        """Send packed commands; the future brings as many replies, errors of the server among them.

        Cancelling the future leaves the connection as it is; it is idle once the replies are there.
        """
        assert self._future is None
        self._quiet.clear()
        future = self._future = self._loop.create_future()
        self._awaited = replies
        if self.lost or self._transport.is_closing():
            self._fail(NotConnected("The connection was lost."))
        else:
            self._deadline = self._loop.time() + self._timeout_s
            if self._timer is None:
                self._timer = self._loop.call_at(self._deadline, self._late)
            self._transport.write(packed)
        return future

    def close(self) -> None:
        """Close the connection; the exchange that is under way fails."""
        self._fail(NotConnected("The connection was closed."))

    def data_received(self, data: bytes) -> None:
        """Take in replies."""
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not _NOTHING:
                self._replies.append(reply)
        except hiredis.ProtocolError:
            self._fail(NotConnected("The server does not speak the Redis protocol."))
            return
        if len(self._replies) == self._awaited:
            self._finish()
        elif len(self._replies) > self._awaited:
            self._fail(NotConnected("The server answers what it was not asked."))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the base's shape
        """Fail the exchange that is under way."""
        self._fail(NotConnected("The connection was lost."))

    def _finish(self) -> None:
        future, replies = self._ended(), self._replies
        self._replies, self._awaited = [], 0
        if future is not None and not future.done():
            future.set_result(replies)

    def _late(self) -> None:
        """Look at the deadline: one timer for many exchanges, as most end long before."""
        self._timer = None
        if self._future is None:
            return
        if self._loop.time() < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._late)
        else:
            self._fail(TimeoutError(f"The server did not answer in {self._timeout_s:g} s."))

    def _fail(self, error: Exception) -> None:
        self.lost = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._transport.abort()
        self._connection._close()  # type: ignore[no-untyped-call]  # noqa: SLF001 - disconnect() would wait for its own protocol
        future = self._ended()
        if future is not None and not future.done():
            future.set_exception(error)

    def _ended(self) -> asyncio.Future[list[Any]] | None:
        future, self._future = self._future, None
        self._quiet.set()
        return future


def _error_of(text: str) -> ResponseError:
    return NoScriptError(text) if text.startswith("NOSCRIPT") else ResponseError(text)
