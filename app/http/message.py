"""Requests and responses of the data API, directly on ASGI, without a framework."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    MutableMapping,
)
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final, TypeAlias

from app.http.paths import parse_integer
from app.http.problems import BODY_TOO_LARGE, INVALID, HttpError

__all__ = [
    "DIRECT_EXTENSION",
    "ClientGone",
    "Header",
    "Headers",
    "Receive",
    "Request",
    "Response",
    "Scope",
    "Send",
    "SendResponse",
    "ServerTiming",
    "TakeBody",
    "bounded",
    "field_of",
    "forbid_body",
    "new_request_id",
    "read_body",
    "request_id",
    "stream_body",
    "too_large",
]

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Header: TypeAlias = tuple[bytes, bytes]
Headers: TypeAlias = list[Header]

DIRECT_EXTENSION: Final = "portolan.direct"
"""An extension of the ASGI scope: a dictionary with a `SendResponse` under ``send``, and a
`TakeBody` under ``take``. Middleware that needs to see all messages removes it from the scope."""

SendResponse: TypeAlias = Callable[[int, Headers, bytes], bool]
"""Takes status, fields and body, and returns whether they were sent; if not, use messages. The
fields include the length of a body if the status allows one, but no Connection field."""

TakeBody: TypeAlias = Callable[[], bytes | None]
"""Returns the body of the request if it is complete; None: messages deliver it."""

_READ_FIELDS: Final = frozenset(
    {
        b"accept",
        b"accept-encoding",
        b"access-control-request-method",
        b"authorization",
        b"content-length",
        b"content-type",
        b"idempotency-key",
        b"if-match",
        b"if-none-match",
        b"last-event-id",
        b"origin",
        b"portolan-schema",
        b"prefer",
        b"transfer-encoding",
        b"x-request-id",
    }
)
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)
_PREFIX = os.urandom(6).hex()
_NUMBERS = itertools.count(1)
_ID_IN_SCOPE: Final = "portolan.request_id"
_EMPTY: Final[Mapping[str, Any]] = {}


class ClientGone(Exception):
    """The client went away before its request was complete."""


class ServerTiming:
    """Durations of the stages of a request, for Server-Timing (W3C).

    Attributes:
        started: When the request began.
        described: Whether the sender may read the descriptions of stages.
    """

    __slots__ = ("_ends", "described", "started")

    def __init__(self) -> None:
        self.described = True
        self.started = perf_counter()
        self._ends: list[tuple[str, float]] = []

    def end(self, name: str, description: str = "") -> None:
        """Record that the stage `name` ends now; it began at the end of the previous stage."""
        metric = f'{name};desc="{description}"' if description and self.described else name
        self._ends.append((metric, perf_counter()))

    @property
    def text(self) -> bytes:
        """The value of the field; durations are in milliseconds."""
        metrics, previous = [], self.started
        for metric, at in self._ends:
            metrics.append(f"{metric};dur={(at - previous) * 1000:.3f}")
            previous = at
        return ", ".join(metrics).encode()


class Request:
    """A request: the raw path, the header fields we read, and the body that is yet to be received.

    The values of a repeated field are joined by commas (RFC 9110, section 5.3).
    """

    __slots__ = (
        "_disconnection",
        "body_limit",
        "headers",
        "id",
        "method",
        "path",
        "phases",
        "query",
        "receive",
        "send_response",
        "take_body",
    )

    body_limit: int | None
    """The sender's limit for a body, in bytes; None: the general limit."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.phases = ServerTiming()
        self.body_limit = None
        self._disconnection: asyncio.Task[None] | None = None
        self.method: str = scope["method"]
        self.path: bytes = scope["raw_path"]
        self.query: bytes = scope["query_string"]
        self.receive = receive
        extensions = scope.get("extensions", _EMPTY)
        direct = extensions.get(DIRECT_EXTENSION, _EMPTY)
        self.send_response: SendResponse | None = direct.get("send")
        self.take_body: TakeBody | None = direct.get("take")
        self.headers = _scan(scope["headers"])
        client_id = self.headers.get(b"x-request-id", "")
        self.id = client_id if _REQUEST_ID.fullmatch(client_id) else new_request_id()

    @property
    def is_disconnected(self) -> bool:
        """Whether the client has disconnected; detected only in a block of `watched`."""
        return self._disconnection is not None and self._disconnection.done()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Detect in the block that the client disconnects; use it after the body was read.

        The server silently drops data for a client that has gone, so a handler that streams an
        answer must check `is_disconnected`.
        """
        self._disconnection = asyncio.create_task(self._disconnected())
        try:
            yield
        finally:
            self._disconnection.cancel()

    async def _disconnected(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass


def new_request_id() -> str:
    return f"{_PREFIX}-{next(_NUMBERS):x}"


def request_id(scope: Scope) -> str:
    """Return the client's or a generated id of a request that is not parsed as a `Request`.

    Repeated calls for one scope return the same id.
    """
    id_: str | None = scope.get(_ID_IN_SCOPE)
    if id_ is None:
        client_id = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
        id_ = client_id if _REQUEST_ID.fullmatch(client_id) else new_request_id()
        scope[_ID_IN_SCOPE] = id_
    return id_


def field_of(scope: Scope, name: bytes) -> str | None:
    """Return a field of the request; repeated values are joined: two credentials are invalid."""
    values = [value for field, value in scope["headers"] if field == name]
    return b", ".join(values).decode("latin-1") if values else None


def _scan(fields: list[tuple[bytes, bytes]]) -> dict[bytes, str]:
    headers: dict[bytes, str] = {}
    for name, value in fields:
        if name in _READ_FIELDS:
            text = value.decode("latin-1")
            headers[name] = f"{headers[name]}, {text}" if name in headers else text
    return headers


@dataclass(slots=True)
class Response:
    """A response; either `body` or `chunks` is sent."""

    status: int
    headers: Headers = field(default_factory=list)
    body: bytes = b""
    chunks: AsyncIterator[bytes] | None = None


def _declared_length(request: Request) -> int:
    text = request.headers.get(b"content-length")
    return 0 if text is None else parse_integer(text, "Content-Length", minimum=0)


def too_large(limit: int, what: str = "body") -> HttpError:
    detail = f"A {what} may have at most {limit} bytes."
    return HttpError(BODY_TOO_LARGE, detail, extra={"limit_bytes": limit})


def bounded(request: Request, limit: int) -> int:
    """Return the sender's limit in bytes, where `limit` is the general one."""
    return limit if request.body_limit is None else min(limit, request.body_limit)


def forbid_body(request: Request) -> None:
    """Refuse a body of a method that gives it no meaning (RFC 9110, section 9.3.1)."""
    if b"transfer-encoding" in request.headers or _declared_length(request):
        raise HttpError(INVALID, f"{request.method} takes no body here.")


async def stream_body(request: Request) -> AsyncIterator[bytes]:
    """Yield the body as it arrives; raise `ClientGone` if the connection closes before its end."""
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        if chunk := message.get("body"):
            yield chunk
        if not message.get("more_body"):
            return


async def read_body(request: Request, limit: int) -> bytes:
    """Read the whole body, up to the smaller of `limit` and the sender's limit, in bytes.

    Raises:
        HttpError: The body is longer.
        ClientGone: The connection closed before the end.
    """
    limit = bounded(request, limit)
    if _declared_length(request) > limit:
        raise too_large(limit)
    complete = request.take_body() if request.take_body else None
    if complete is not None:
        return _bounded(complete, limit)
    message = await request.receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        body: bytes = message.get("body", b"")
        return _bounded(body, limit)
    return await _read_rest(request, message, limit)


def _bounded(body: bytes, limit: int) -> bytes:
    if len(body) > limit:
        raise too_large(limit)
    return body


async def _read_rest(request: Request, first: MutableMapping[str, Any], limit: int) -> bytes:
    if first["type"] == "http.disconnect":
        raise ClientGone
    body = bytearray(first.get("body", b""))
    async for chunk in stream_body(request):
        body += chunk
        if len(body) > limit:
            raise too_large(limit)
    return _bounded(bytes(body), limit)
