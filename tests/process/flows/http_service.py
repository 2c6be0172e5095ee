"""An HTTP service whose paths choose its answers, and which records its requests."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from mediator.flows.http_hosts import HttpHosts, Origin

__all__ = ["AnyLocalHost", "HttpService", "ReceivedRequest", "http_service"]

_CHUNK: Final = b"x" * 2**16
_HUGE: Final = 50 * 2**20
_TRICKLE_S: Final = 0.02
_HEAD: Final = (
    "HTTP/1.1 {status} Any\r\ncontent-type: {type}\r\ncontent-length: {length}\r\n{more}\r\n"
)


FIXED: Final = {
    "text": (b"hello", "text/plain", ""),
    "garbage": (b'{"a": ', "application/json", ""),
    "bomb": (b"x", "application/json", "content-encoding: gzip\r\n"),
    "empty": (b"", "text/plain", ""),
}
"""Body, content type and further header fields of the answers of `/fixed/<name>`."""


class AnyLocalHost(HttpHosts):
    """Allows every port of this machine: tests do not know theirs in advance."""

    def __init__(self) -> None:
        super().__init__(private=True)

    def check(self, origin: Origin, pointer: str | None = None) -> None:
        if origin.host != "127.0.0.1":
            super().check(origin, pointer)


@dataclass(frozen=True)
class ReceivedRequest:
    method: str
    target: str
    headers: dict[str, str]
    body: Any

    @property
    def key(self) -> str | None:
        return self.headers.get("idempotency-key")


@dataclass
class HttpService:
    """`/customers/<name>` is a customer, `/fail/<n>/…` answers 500 n times; others fail at once.

    `/nested/<n>` answers with n nested arrays.

    Attributes:
        sent: Bytes of the response of 50 MiB that were sent.
    """

    port: int = 0
    received: list[ReceivedRequest] = field(default_factory=list)
    sent: int = 0
    stopped: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def to(self, path: str) -> list[ReceivedRequest]:
        return [request for request in self.received if request.target.startswith(path)]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _read(reader)) is not None:
                self.received.append(request)
                await self._answer(request, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        kind, *arguments = request.target[1:].split("?")[0].split("/")
        match kind:
            case "customers":
                document = {"customer": arguments[0], "amount": len(arguments[0])}
                _write(writer, 200, orjson.dumps(document))
            case "fail" if len(self.to(request.target)) <= int(arguments[0]):
                _write(writer, 500, b"{}")
            case "fail":
                _write(writer, 200, orjson.dumps({"received": request.body}))
            case "status":
                _write(writer, int(arguments[0]), b"{}", more="location: /customers/A\r\n")
            case "fixed":
                body, type_, more = FIXED[arguments[0]]
                _write(writer, 200, body, type_=type_, more=more)
            case "nested":
                _write(writer, 200, b"[" * int(arguments[0]) + b"]" * int(arguments[0]))
            case "huge":
                await self._stream(writer)
            case _:
                await self._fail(kind, writer)
        await writer.drain()

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        _write_head(writer, _HUGE)
        while self.sent < _HUGE:
            writer.write(_CHUNK)
            await writer.drain()
            self.sent += len(_CHUNK)

    async def _fail(self, kind: str, writer: asyncio.StreamWriter) -> None:
        """Trickle, break off in the middle, or hang."""
        if kind != "hang":
            _write_head(writer, 100)
        if kind == "broken":
            writer.close()
        while kind == "trickle":
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(_TRICKLE_S)
        if kind == "hang":
            await self.stopped.wait()


def _write_head(writer: asyncio.StreamWriter, length: int) -> None:
    head = _HEAD.format(status=200, type="application/json", length=length, more="")
    writer.write(head.encode())


def _write(
    writer: asyncio.StreamWriter,
    status: int,
    body: bytes,
    *,
    type_: str = "application/json; charset=utf-8",
    more: str = "",
) -> None:
    head = _HEAD.format(status=status, type=type_, length=len(body), more=more)
    writer.write(head.encode() + body)


async def _read(reader: asyncio.StreamReader) -> ReceivedRequest | None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii")
    line, *fields = head.strip().split("\r\n")
    method, target, _ = line.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (f.partition(":") for f in fields)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return ReceivedRequest(method, target, headers, orjson.loads(body) if body else None)


@asynccontextmanager
async def http_service(tls: ssl.SSLContext | None = None) -> AsyncIterator[HttpService]:
    service = HttpService()
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0, ssl=tls)
    service.port = server.sockets[0].getsockname()[1]
    try:
        yield service
    finally:
        service.stopped.set()
        server.close()
