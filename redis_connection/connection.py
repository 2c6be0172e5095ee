"""An open, pipelined connection to Redis.

The driver opens the connection (addresses, TLS, authentication) and its parser reads replies; the
socket is then ours, because a pooled call of the driver costs many times as much as the server's
work. Only this module uses private names of the driver.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any, Final, TypeAlias

import hiredis
from redis.asyncio.connection import AbstractConnection

__all__ = [
    "TIMEOUT_S",
    "Connection",
    "ConnectionLost",
    "OnReplies",
    "ReplyTimeout",
    "open_connection",
]

TIMEOUT_S = 3.0
"""Default limit of the wait for a reply of the shared Redis."""

_INCOMPLETE: Final = object()


class ConnectionLost(ConnectionError):
    """The replies of an exchange will not arrive.

    Attributes:
        sent: Whether its commands were written, so that the server may have executed them.
    """

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


class ReplyTimeout(ConnectionLost, TimeoutError):
    """The replies did not arrive by the deadline."""


OnReplies: TypeAlias = Callable[[list[Any] | ConnectionLost], None]
"""Called with the replies to all commands, including errors of the server, or with the failure."""


class _Exchange:
    """Commands sent together, and their replies so far."""

    __slots__ = ("count", "deadline", "on_replies", "replies")

    def __init__(self, count: int, deadline: float, on_replies: OnReplies) -> None:
        self.count = count
        self.deadline = deadline
        self.on_replies = on_replies
        self.replies: list[Any] = []


class Connection(asyncio.Protocol):
    """A connection that is open until it is lost.

    Args:
        driver: The driver's open connection; this takes over its socket.
        error_of_reply: Converts the text of an error reply to an exception.
    """

    def __init__(
        self, driver: AbstractConnection, error_of_reply: Callable[[str], Exception]
    ) -> None:
        self._driver = driver
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(
            protocolError=hiredis.ProtocolError,
            replyError=error_of_reply,
            notEnoughData=_INCOMPLETE,
        )
        self._unsent: list[bytes] = []
        self._exchanges: deque[_Exchange] = deque()
        self._sent = 0
        self._timer: asyncio.TimerHandle | None = None
        self.lost = False
        writer = driver._writer  # noqa: SLF001 - the driver does not expose its transport
        assert writer is not None
        self._transport = writer.transport
        self._transport.set_protocol(self)

    @property
    def idle(self) -> bool:
        """Whether commands sent now need not wait for other exchanges."""
        return not self._exchanges and not self.lost and not self._transport.is_closing()

    def request(self, commands: Sequence[bytes], deadline: float) -> asyncio.Future[list[Any]]:
        """Send encoded commands; the future gets their replies.

        Cancelling the future does not affect the connection: its replies are dropped.
        """
        future: asyncio.Future[list[Any]] = self._loop.create_future()
        self.send(commands, deadline, partial(_resolve, future))
        return future

    def send(self, commands: Sequence[bytes], deadline: float, on_replies: OnReplies) -> None:
        """Send encoded commands, and call back in the loop's tick in which their replies arrive.

        A future wakes its task two ticks later, which takes as long as all other work here.

        Args:
            commands: The commands, sent in one write.
            deadline: The time by which the replies must arrive, by `time.monotonic`.
            on_replies: The callback; it may send.

        Raises:
            ConnectionLost: The connection is already lost.
        """
        if self.lost:
            raise ConnectionLost("the connection was lost", sent=False)
        self._exchanges.append(_Exchange(len(commands), deadline, on_replies))
        if len(self._exchanges) == 1:
            self._write(commands)  # no exchange is pending, and a tick is a quarter of a short call
            return
        # Commands sent in one tick while replies are awaited share one write.
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.extend(commands)

    def close(self) -> None:
        """Close the connection; pending exchanges fail."""
        self._fail("the connection was closed")

    def data_received(self, data: bytes) -> None:
        """Deliver replies in the order of the commands."""
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not _INCOMPLETE:
                self._add(reply)
        except hiredis.ProtocolError:
            self._fail("the server does not speak the Redis protocol")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the base's shape
        self._fail("the connection was lost")

    def _flush(self) -> None:
        if not self.lost:
            commands, self._unsent = self._unsent, []
            self._write(commands)

    def _write(self, commands: Sequence[bytes]) -> None:
        if self._transport.is_closing():
            return  # `connection_lost` is called in a moment
        self._transport.write(commands[0] if len(commands) == 1 else b"".join(commands))
        # Commands are written in the order of their exchanges; these are the last.
        self._sent = len(self._exchanges)
        if self._timer is None:
            self._start_timer()

    def _add(self, reply: Any) -> None:
        if not self._exchanges:
            raise hiredis.ProtocolError("a reply to no command")
        exchange = self._exchanges[0]
        exchange.replies.append(reply)
        if len(exchange.replies) == exchange.count:
            self._exchanges.popleft()
            self._sent -= 1
            exchange.on_replies(exchange.replies)

    def _start_timer(self) -> None:
        remaining_s = self._exchanges[0].deadline - monotonic()
        self._timer = self._loop.call_later(max(remaining_s, 0.0), self._check_deadline)

    def _check_deadline(self) -> None:
        """Fail the connection once its oldest exchange is overdue: all others queue behind it.

        One timer serves many exchanges, as most end long before.
        """
        self._timer = None
        if not self._exchanges:
            return
        if monotonic() < self._exchanges[0].deadline:
            self._start_timer()
        else:
            self._fail("the server did not answer in time", ReplyTimeout)

    def _fail(self, reason: str, kind: type[ConnectionLost] = ConnectionLost) -> None:
        # Before any callback: a callback that sends is refused.
        self.lost = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._transport.abort()
        self._driver._close()  # type: ignore[no-untyped-call]  # noqa: SLF001 - disconnect() would wait for its own protocol
        exchanges, self._exchanges = self._exchanges, deque()
        self._unsent.clear()
        for position, exchange in enumerate(exchanges):
            # They were written in this order; the server may have executed the first `_sent`.
            exchange.on_replies(kind(reason, sent=position < self._sent))


async def open_connection(
    driver: AbstractConnection, error_of_reply: Callable[[str], Exception]
) -> Connection:
    """Connect with the driver, and take over its socket."""
    connect: Any = driver.connect  # the driver's methods have no annotations
    try:
        await connect()
        return Connection(driver, error_of_reply)
    except BaseException:
        await driver.disconnect(nowait=True)  # the driver does not release it
        raise


def _resolve(future: asyncio.Future[list[Any]], replies: list[Any] | ConnectionLost) -> None:
    if future.done():
        return
    if isinstance(replies, ConnectionLost):
        future.set_exception(replies)
    else:
        future.set_result(replies)
