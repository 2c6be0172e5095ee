"""A closed-loop HTTP/1.1 client, as cheap as Python allows: rendered requests, no futures.

One connection carries one request at a time (no pipelining). The callback that
sees the end of an answer sends the next request.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import cast

import httptools

__all__ = ["LaneRecord", "LoadConnection", "Window", "render"]

_FIRST_ERROR = 400


def render(
    method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None
) -> bytes:
    """Return the bytes of a request; its length is stated if it has a body."""
    fields = {"Host": "localhost", **(headers or {})}
    if body:
        fields["Content-Length"] = str(len(body))
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode() + body


@dataclass(frozen=True, slots=True)
class Window:
    """The measured time, by `perf_counter`: answers before `begin` are the warm-up."""

    begin: float
    end: float


@dataclass(slots=True)
class LaneRecord:
    """The answers to the requests of a lane.

    Attributes:
        latencies: Seconds of each request answered within the window.
        acknowledged: Requests answered successfully, within the window or not.
        refused: Answers from 400 on, and those whose body reports an error, by status.
    """

    latencies: array[float] = field(default_factory=lambda: array("d"))
    acknowledged: int = 0
    refused: dict[int, int] = field(default_factory=dict)


class LoadConnection(asyncio.Protocol):
    """Sends one request after the other until the window ends.

    Args:
        requests: The requests to send; never ends.
        every_s: Seconds from one request to the next; None: as soon as the last one is answered.
            A request that leaves late is measured from when it was due.
        error: Bytes in an answer that report an error, whatever its status; None: only the status
            does.
    """

    def __init__(
        self,
        requests: Iterator[bytes],
        window: Window,
        record: LaneRecord,
        every_s: float | None = None,
        error: bytes | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._requests = requests
        self._window = window
        self._record = record
        self._every_s = every_s
        self._error = error
        self._reports_error = False
        self._due = perf_counter()
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self.ended: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._due = perf_counter()
        self._send()

    def data_received(self, data: bytes) -> None:
        if self._error is not None:
            self._reports_error |= self._error in data
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        now = perf_counter()
        self._count_answer(now)
        if now >= self._window.end:
            self._end()
        elif self._every_s is None:
            self._due = now
            self._send()
        else:
            # Not from now: a slow answer would hide the wait of later requests.
            self._due += self._every_s
            self._loop.call_later(max(0.0, self._due - now), self._send)

    def connection_lost(self, exc: Exception | None) -> None:
        """End; a connection that the server closed is a failure."""
        if not self.ended.done():
            self.ended.set_exception(exc or ConnectionError("the server closed a connection"))

    def _send(self) -> None:
        assert self._transport is not None
        if self._transport.is_closing():
            return
        self._transport.write(next(self._requests))

    def _count_answer(self, now: float) -> None:
        status = self._parser.get_status_code()
        record = self._record
        if status >= _FIRST_ERROR or self._reports_error:
            self._reports_error = False
            record.refused[status] = record.refused.get(status, 0) + 1
            return
        record.acknowledged += 1
        if self._window.begin <= now < self._window.end:
            record.latencies.append(now - self._due)

    def _end(self) -> None:
        assert self._transport is not None
        if not self.ended.done():
            self.ended.set_result(None)
        self._transport.close()
