"""An open connection to the sketch's Redis, on which one exchange is under way at a time.

The driver makes the connection (addresses, TLS, authentication) and its parser reads replies; the
socket is then ours, because a call of the driver takes longer than the server does for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

import hiredis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as NotConnected
from redis.exceptions import NoScriptError, ResponseError

__all__ = ["Tell", "Wire"]

_NOTHING: Final = object()

Tell: TypeAlias = Callable[[list[Any] | Exception], None]
"""Told the replies of an exchange, errors of the server among them, or why there are none."""


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
        self._tell: Tell | None = None
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
        return self._tell is None and not self.lost

    async def quiet(self) -> None:
        """Wait until no exchange is under way."""
        await self._quiet.wait()

    async def ask(self, packed: bytes, replies: int) -> list[Any]:
        """Send packed commands; returns as many replies, errors of the server among them.

        Cancelling leaves the connection as it is; it is idle once the replies are there.
        """
        answer: asyncio.Future[list[Any]] = self._loop.create_future()
        self.post(packed, replies, partial(_set, answer))
        return await answer

    def post(self, packed: bytes, replies: int, tell: Tell) -> None:
        """Send packed commands; as many replies are told as soon as they are there.

        A future would take two turns of the loop more, and as long as all the rest here.
        """
        assert self._tell is None
        self._quiet.clear()
        self._tell = tell
        self._awaited = replies
        if self.lost or self._transport.is_closing():
            self._fail(NotConnected("The connection was lost."))
        else:
            self._deadline = self._loop.time() + self._timeout_s
            if self._timer is None:
                self._timer = self._loop.call_at(self._deadline, self._late)
            self._transport.write(packed)

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
        replies, self._replies = self._replies, []
        self._awaited = 0
        self._end(replies)

    def _late(self) -> None:
        """Look at the deadline: one timer for many exchanges, as most end long before."""
        self._timer = None
        if self._tell is None:
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
        self._end(error)

    def _end(self, came: list[Any] | Exception) -> None:
        """Tell what came of the exchange under way; whoever is told may begin the next one."""
        tell, self._tell = self._tell, None
        self._quiet.set()
        if tell is not None:
            tell(came)


def _set(answer: asyncio.Future[list[Any]], came: list[Any] | Exception) -> None:
    if answer.done():
        return
    if isinstance(came, Exception):
        answer.set_exception(came)
    else:
        answer.set_result(came)


def _error_of(text: str) -> ResponseError:
    return NoScriptError(text) if text.startswith("NOSCRIPT") else ResponseError(text)
