"""Requests and responses of the data API, straight from ASGI: no framework in between."""

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
`TakeBody` under ``take``. Middleware that has to see all messages takes it out of the scope."""

SendResponse: TypeAlias = Callable[[int, Headers, bytes], bool]
"""Takes status, fields and body, and returns whether they were sent: otherwise messages will do.
The fields say how long the body is if there may be one, and nothing of the connection."""

TakeBody: TypeAlias = Callable[[], bytes | None]
"""Returns the body of the request if all of it is there; None: messages will bring it."""

_READ: Final = frozenset(
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
_KNOWN_ID: Final = "portolan.request_id"
_NOTHING: Final[Mapping[str, Any]] = {}


class ClientGone(Exception):
    """The client went away before its request was complete."""


class ServerTiming:
    """How long the stages of a request took, for Server-Timing (W3C).

    Attributes:
        started: When the request began.
        described: Whether the sender may know more of a stage than its name.
    """

    __slots__ = ("_ends", "described", "started")

    def __init__(self) -> None:
        self.described = True
        self.started = perf_counter()
        self._ends: list[tuple[str, float]] = []

    def end(self, name: str, description: str = "") -> None:
        """Note that the stage `name` ended now; it began where the one before ended."""
        metric = f'{name};desc="{description}"' if description and self.described else name
        self._ends.append((metric, perf_counter()))

    @property
    def text(self) -> bytes:
        """The value of the field, durations in milliseconds."""
        metrics, before = [], self.started
        for metric, at in self._ends:
            metrics.append(f"{metric};dur={(at - before) * 1000:.3f}")
            before = at
        return ", ".join(metrics).encode()


class Request:
    """A request as it came: the raw path, the fields we read, and the body still to be received.

    Fields that come several times are joined by commas (RFC 9110, section 5.3).
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
    """How many bytes the sender's body may have; None: as many as anybody's."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.phases = ServerTiming()
        self.body_limit = None
        self._disconnection: asyncio.Task[None] | None = None
        self.method: str = scope["method"]
        self.path: bytes = scope["raw_path"]
        self.query: bytes = scope["query_string"]
        self.receive = receive
        extensions = scope.get("extensions", _NOTHING)
        direct = extensions.get(DIRECT_EXTENSION, _NOTHING)
        self.send_response: SendResponse | None = direct.get("send")
        self.take_body: TakeBody | None = direct.get("take")
        self.headers = _scan(scope["headers"])
        given = self.headers.get(b"x-request-id", "")
        self.id = given if _REQUEST_ID.fullmatch(given) else new_request_id()

    @property
    def is_disconnected(self) -> bool:
        """Whether the client is known to have gone: in a block of `watched` only."""
        return self._disconnection is not None and self._disconnection.done()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Notice in the block that the client goes; to be used when the body has been read.

        A server drops what is sent to a client that has gone, without an error: whoever makes an
        answer piece by piece has to look.
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
    """Return the id of a request that is not read as a `Request`: its own, or always the same."""
    known: str | None = scope.get(_KNOWN_ID)
    if known is None:
        given = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
        known = given if _REQUEST_ID.fullmatch(given) else new_request_id()
        scope[_KNOWN_ID] = known
    return known


def field_of(scope: Scope, name: bytes) -> str | None:
    """Return a field of the request; one that comes twice is no credential."""
    found = [value for given, value in scope["headers"] if given == name]
    return b", ".join(found).decode("latin-1") if found else None


def _scan(fields: list[tuple[bytes, bytes]]) -> dict[bytes, str]:
    headers: dict[bytes, str] = {}
    for name, value in fields:
        if name in _READ:
            text = value.decode("latin-1")
            headers[name] = f"{headers[name]}, {text}" if name in headers else text
    return headers


@dataclass(slots=True)
class Response:
    """An answer; either `body` or `chunks` is sent."""

    status: int
    headers: Headers = field(default_factory=list)
    body: bytes = b""
    chunks: AsyncIterator[bytes] | None = None


def _declared_length(request: Request) -> int:
    text = request.headers.get(b"content-length")
    return 0 if text is None else parse_integer(text, "Content-Length", least=0)


def too_large(limit: int, what: str = "body") -> HttpError:
    detail = f"A {what} may have at most {limit} bytes."
    return HttpError(BODY_TOO_LARGE, detail, extra={"limit_bytes": limit})


def bounded(request: Request, limit: int) -> int:
    """Return how many bytes this sender may send, where `limit` holds for all."""
    return limit if request.body_limit is None else min(limit, request.body_limit)


def forbid_body(request: Request) -> None:
    """Refuse a body where it would have no meaning (RFC 9110, section 9.3.1)."""
    if b"transfer-encoding" in request.headers or _declared_length(request):
        raise HttpError(INVALID, f"{request.method} takes no body here.")


async def stream_body(request: Request) -> AsyncIterator[bytes]:
    """Yield the body as it comes in; raise `ClientGone` if the connection closes before its end."""
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        if chunk := message.get("body"):
            yield chunk
        if not message.get("more_body"):
            return


async def read_body(request: Request, limit: int) -> bytes:
    """Read the whole body, never more than `limit` bytes of it, nor than the sender may send.

    Raises:
        HttpError: It is longer.
        ClientGone: The connection closed before the end.
    """
    limit = bounded(request, limit)
    if _declared_length(request) > limit:
        raise too_large(limit)
    taken = request.take_body() if request.take_body else None
    if taken is not None:
        return _bounded(taken, limit)
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
