"""One connection shared by all calls.

What is asked for in one tick of the event loop while answers are awaited goes out in one piece, and
answers are given out in the order of the questions.

The driver makes the connection (addresses, TLS, authentication) and its parser reads replies; the
socket is then ours, because a pooled call of the driver costs many times what the server does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

import hiredis
from redis.asyncio.connection import AbstractConnection

from mediator.base.clock import Clock
from mediator.stores.port import StoreError, StoreTimeout, StoreUnavailable
from mediator.stores.redis.failures import error_of_reply

__all__ = ["Wire"]

_NOTHING = object()


class _Batch:
    """The commands of one call, and their replies so far."""

    __slots__ = ("count", "future", "replies", "started", "writes")

    def __init__(self, count: int, future: asyncio.Future[list[Any]], started: float) -> None:
        self.count = count
        self.future = future
        self.started = started
        self.writes = False
        self.replies: list[Any] = []


class Wire(asyncio.Protocol):
    """A connection that is open, until it is lost.

    Args:
        connection: The driver's connection, connected; this takes its socket over.
        system: Name of the system, for messages.
        deadline_s: Longest time of one call.
        clock: Tells the time of calls.
    """

    def __init__(
        self, connection: AbstractConnection, system: str, deadline_s: float, clock: Clock
    ) -> None:
        self._connection = connection
        self._system = system
        self._deadline_s = deadline_s
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._replies = hiredis.Reader(
            protocolError=hiredis.ProtocolError,
            replyError=error_of_reply,
            notEnoughData=_NOTHING,
        )
        self._unsent: list[bytes] = []
        self._waiting: deque[_Batch] = deque()
        self._sent = 0
        self._timer: asyncio.TimerHandle | None = None
        self.lost = False
        writer = connection._writer  # noqa: SLF001 - the driver has no public way to its transport
        assert writer is not None
        self._transport = writer.transport
        self._transport.set_protocol(self)

    def request(
        self, commands: Sequence[bytes], started: float, *, writes: bool
    ) -> asyncio.Future[list[Any]]:
        """Send packed commands; the future brings their replies, errors among them.

        Cancelling the future leaves the connection as it is: the replies are dropped as they come.
        """
        if self.lost:
            raise StoreUnavailable(f"{self._system}: the connection was lost")
        batch = _Batch(len(commands), self._loop.create_future(), started)
        batch.writes = writes
        self._waiting.append(batch)
        if len(self._waiting) == 1:
            self._send(commands)  # nothing is under way, and a tick is a quarter of a short call
            return batch.future
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.extend(commands)
        return batch.future

    def close(self) -> None:
        """Close the connection; calls that wait fail."""
        self._fail(StoreUnavailable(f"{self._system}: the connection was closed"))

    def data_received(self, data: bytes) -> None:
        """Give out replies."""
        try:
            self._replies.feed(data)
            reply = self._replies.gets()
            while reply is not _NOTHING:
                self._give(reply)
                reply = self._replies.gets()
        except hiredis.ProtocolError:
            self._fail(StoreUnavailable(f"{self._system} does not speak the Redis protocol"))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the base's shape
        """Fail the calls that wait."""
        self._fail(StoreUnavailable(f"{self._system}: the connection was lost"))

    def _flush(self) -> None:
        if not self.lost:
            commands, self._unsent = self._unsent, []
            self._send(commands)

    def _send(self, commands: Sequence[bytes]) -> None:
        if self._transport.is_closing():
            return  # that it is lost will be told in a moment
        self._transport.write(commands[0] if len(commands) == 1 else b"".join(commands))
        self._sent = len(self._waiting)
        if self._timer is None:
            self._scheduler()

    def _give(self, reply: Any) -> None:
        batch = self._waiting[0]
        batch.replies.append(reply)
        if len(batch.replies) == batch.count:
            self._waiting.popleft()
            self._sent -= 1
            if not batch.future.done():
                batch.future.set_result(batch.replies)

    def _scheduler(self) -> None:
        oldest = self._waiting[0].started
        left = oldest + self._deadline_s - self._clock.monotonic()
        self._timer = self._loop.call_later(max(left, 0.0), self._check)

    def _check(self) -> None:
        """Give the connection up once its oldest call is overdue: all others queue behind it."""
        self._timer = None
        if not self._waiting:
            return
        if self._clock.monotonic() < self._waiting[0].started + self._deadline_s:
            self._scheduler()
        else:
            self._fail(StoreTimeout(f"{self._system} did not answer in {self._deadline_s:g} s"))

    def _fail(self, error: StoreError) -> None:
        self.lost = True
        if self._timer is not None:
            self._timer.cancel()
        self._transport.abort()
        self._connection._close()  # type: ignore[no-untyped-call]  # noqa: SLF001 - disconnect() would wait for its own protocol
        for position, batch in enumerate(self._waiting):
            if not batch.future.done():
                batch.future.set_exception(self._error_for(batch, error, position < self._sent))
        self._waiting.clear()
        self._unsent.clear()

    def _error_for(self, batch: _Batch, error: StoreError, sent: bool) -> StoreError:
        if not sent:
            return StoreUnavailable(f"{self._system}: the connection was lost before the call")
        if batch.writes:
            return StoreTimeout(f"{error}; the write may or may not have taken effect")
        return type(error)(*error.args)
