"""HTTP/1 connections on uvicorn's protocol: bounds, refusals as problems, answers in one write.

All uses of undocumented names of uvicorn are here: pyproject.toml pins its version, and
tests/unit/http/test_http_uvicorn.py checks that the names exist.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from functools import partial
from typing import Any, Final
from weakref import ref

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from app.http.browser import send_problem
from app.http.connections import BODY_PROGRESS, Awaited, Connections, PortLimits, Wait
from app.http.heads import check_head
from app.http.message import DIRECT_EXTENSION, new_request_id
from app.http.problems import (
    HEAD_TOO_LARGE,
    INVALID,
    REQUEST_TIMEOUT,
    TOO_MANY_CONNECTIONS,
    HttpError,
)

__all__ = ["HEAD_LIMIT", "PIPELINED_LIMIT", "Http1Protocol", "protocol_of"]

HEAD_LIMIT: Final = 128 * 2**10
"""Bytes of a head after the piece of data in which it began. Also bounds the bytes between the
pieces of a body: chunk sizes, chunk extensions and trailers."""

PIPELINED_LIMIT: Final = 100
"""Requests of a connection that wait for the answer to an earlier request."""

_LINE: Final = b"%b: %b\r\n".__mod__
_JOINED_BODY: Final = 2**14
"""Bytes of a body up to which it is joined to the head, as a system call costs more than a copy."""

_IDLE: Final = "idle"
_HEAD: Final = "head"
_BODY: Final = "body"

_log = logging.getLogger("portolan.connections")


class Http1Protocol(HttpToolsProtocol):
    """uvicorn's protocol with timeouts and limits, which refuses by problems (RFC 9457).

    It is a `PortConnection` of its port.
    """

    port = Connections(PortLimits())
    _phase = _IDLE
    _reading_ended = False
    """Whether the rest of the connection is ignored."""
    _received = 0
    _progress = 0
    """The value of `_received` at the last start of a head or piece of a body."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self.port.admit(self, self.client[0] if self.client else ""):
            headers = [("Retry-After", "1")]
            detail = "There are too many connections: close some, or try again later."
            self._refuse(HttpError(TOO_MANY_CONNECTIONS, detail, headers=headers))

    def connection_lost(self, exc: Exception | None) -> None:
        self.port.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._reading_ended:
            return
        self._received += len(data)
        super().data_received(data)
        if self._received - self._progress > HEAD_LIMIT and not self._reading_ended:
            detail = (
                f"There are more than {HEAD_LIMIT} bytes outside of the body: send fewer fields."
            )
            self._refuse(HttpError(HEAD_TOO_LARGE, detail))

    def on_message_begin(self) -> None:
        self._phase, self._progress = _HEAD, self._received
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= PIPELINED_LIMIT:
            self._stop(HttpError(INVALID, "Too many requests wait in the connection."))
        parser = self.parser
        switches = parser.should_upgrade()
        try:
            check_head(parser.get_http_version(), self.url, self.headers, switches=switches)
        except HttpError as error:
            self._stop(error)
        super().on_headers_complete()
        self._phase = _BODY
        self.scope["extensions"] = DirectExchange(self.cycle).extension()
        # Trailers are fields that are not checked (RFC 9110, section 6.5.1).
        self.headers = _DISCARD

    def on_body(self, body: bytes) -> None:
        self._progress = self._received
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._phase = _IDLE
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Start the next pipelined request, if any; sweeps end idle connections.

        uvicorn sets a timer after each answer, which takes longer than this whole method.
        """
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())

    def send_400_response(self, msg: str) -> None:
        if not self._reading_ended:
            # The error that is being handled says more than the message of uvicorn.
            detail = f"The request is not valid HTTP/1.1 (RFC 9112): {sys.exception() or msg}."
            self._refuse(HttpError(INVALID, detail))

    def _unsupported_upgrade_warning(self) -> None:
        """Answer a request to switch protocols, and ignore everything after it."""
        self._reading_ended = True
        self.cycle.keep_alive = False

    def awaited(self) -> Awaited | None:
        unsent = self.transport.get_write_buffer_size()
        if unsent:
            return "response", unsent
        if self.flow.read_paused or self._reading_ended:
            return None
        if self._phase == _BODY and not self.cycle.waiting_for_100_continue:
            return "body", self._received // BODY_PROGRESS
        if self._phase == _HEAD or self.cycle is None:
            return "head", self._progress
        return None if self._answering() else ("idle", self._progress)

    def time_out(self, wait: Wait) -> None:
        if wait != "idle":
            _log.info("a connection timed out: its %s made no progress", wait)
        if wait == "response":
            self.transport.abort()
        elif self._phase == _IDLE:
            self.transport.close()  # no request has begun that could be answered
        else:
            detail = f"The {wait} of the request did not come in time: send it again, faster."
            self._refuse(HttpError(REQUEST_TIMEOUT, detail))

    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _stop(self, error: HttpError) -> None:
        """Refuse a head; the exception stops the parser."""
        self._refuse(error)
        raise error

    def _refuse(self, error: HttpError) -> None:
        """Refuse the request that is being read, after all earlier ones; then close."""
        self._reading_ended = True
        if self._phase == _BODY:
            self._break_off(error)
        elif self._answering():
            self.cycle.keep_alive = False  # earlier ones are answered (RFC 9112, section 9.3.2)
        else:
            self._write_refusal(error)

    def _break_off(self, error: HttpError) -> None:
        """End a request whose body will not be complete."""
        cycle = self.cycle
        if self.pipeline:
            cycle.keep_alive = False
            # uvicorn keeps the newest request, the one that is being read, at the left.
            self.pipeline[0] = cycle, partial(_answer, error)
            return
        cycle.disconnected = True
        cycle.message_event.set()
        if cycle.response_started:
            self.transport.close()
        else:
            self._write_refusal(error)

    def _write_refusal(self, error: HttpError) -> None:
        status, fields, body = error.answer(new_request_id())
        lines = map(_LINE, [*fields, (b"connection", b"close")])
        self.transport.write(b"%b%b\r\n%b" % (STATUS_LINE[status], b"".join(lines), body))
        self.transport.close()


class DirectExchange:
    """Takes the body of a request, and answers it, without ASGI messages.

    uvicorn takes an answer as messages, checks each field of its head, and writes head and body
    separately. This takes a body that came with its head, and writes an answer in one piece.
    """

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        # A weak reference: the cycle's scope refers to this object.
        self._cycle = ref(cycle)

    def extension(self) -> dict[str, Any]:
        return {DIRECT_EXTENSION: {"send": self.send, "take": self.take}}

    def take(self) -> bytes | None:
        cycle = self._cycle()
        if cycle is None or cycle.more_body or cycle.disconnected or cycle.response_complete:
            return None
        if cycle.flow.read_paused:
            return None  # receiving a message resumes reading
        body, cycle.body = bytes(cycle.body), bytearray()
        cycle.message_event.clear()
        return body

    def send(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> bool:
        cycle = self._cycle()
        # Messages have backpressure and an access log; this has neither.
        if cycle is None or cycle.flow.write_paused or cycle.access_log or cycle.response_started:
            return False
        if not cycle.disconnected:
            head = _head(cycle, status, headers)
            cycle.response_started = cycle.response_complete = True
            cycle.waiting_for_100_continue = False
            _write(cycle.transport, head, body)
            cycle.message_event.set()
            if not cycle.keep_alive:
                cycle.transport.close()
            cycle.on_response()
        return True


def _head(cycle: RequestResponseCycle, status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return the head; raise `ValueError` if a field contains a line break or NUL."""
    fields = [*cycle.default_headers, *headers]
    if not cycle.keep_alive:
        fields.append((b"connection", b"close"))
    lines = b"".join(map(_LINE, fields))
    # The only CR and LF of a field are at its end; more of them would split it.
    if not lines.count(b"\r") == lines.count(b"\n") == len(fields) or b"\0" in lines:
        raise ValueError("a field of the answer contains a line break or NUL")
    return b"%b%b\r\n" % (STATUS_LINE[status], lines)


def _write(transport: asyncio.Transport, head: bytes, body: bytes) -> None:
    if transport.is_closing():
        return  # the client may have gone
    if len(body) <= _JOINED_BODY:
        transport.write(head + body)
    else:
        transport.write(head)
        transport.write(body)


def protocol_of(port: Connections) -> type[Http1Protocol]:
    return type("Http1Protocol", (Http1Protocol,), {"port": port})


async def _answer(error: HttpError, _scope: Any, _receive: Any, send: Any) -> None:
    await send_problem(error, new_request_id(), send)


class _Discard(list[tuple[bytes, bytes]]):
    """A list that stays empty."""

    def append(self, _: tuple[bytes, bytes]) -> None:
        """Append nothing."""


_DISCARD: Final = _Discard()
