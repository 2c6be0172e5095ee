"""HTTP/1.1 over a plain socket, which sends exactly what a test wrote."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

import orjson

__all__ = ["Answer", "Connection", "Unanswered", "Unreachable", "read_answer"]

RESPONSE_TIMEOUT_S = 60.0
_BODILESS = (204, 304)


class Unreachable(Exception):
    """No server listens: the request was not sent."""


class Unanswered(Exception):
    """The connection broke after the request was sent: its outcome is unknown."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A response with header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return orjson.loads(self.body)

    def lines(self) -> list[Any]:
        """Return the documents of an NDJSON body."""
        return [orjson.loads(line) for line in self.body.splitlines()]

    def problem(self) -> dict[str, Any]:
        """Return the problem document; require that the response is one."""
        assert self.headers.get("content-type") == "application/problem+json", self
        document: dict[str, Any] = self.json()
        assert document["status"] == self.status
        assert document["type"].startswith("/problems/")
        return document


class Connection:
    """A connection that opens when needed, and reopens after it broke.

    Args:
        base: Address of the server, for example ``http://127.0.0.1:8080``.
    """

    def __init__(self, base: str) -> None:
        parts = urlsplit(base)
        self._address = (parts.hostname, parts.port)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def request(
        self,
        method: str,
        target: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request, with its body as JSON unless it is bytes, and return the response.

        Raises:
            Unreachable: The request was not sent.
            Unanswered: The request was sent.
        """
        return await self.send(_encode(method, target, body, headers or {}), method)

    async def send(self, request: bytes, method: str = "GET") -> Answer:
        """Send an encoded request; see `request`."""
        reader, writer = self._streams or await self._open()
        try:
            async with asyncio.timeout(RESPONSE_TIMEOUT_S):
                writer.write(request)
                response = await read_answer(reader, method)
        except (OSError, EOFError) as error:
            self.close()
            raise Unanswered from error
        if response.headers.get("connection") == "close":
            self.close()
        return response

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            self._streams = await asyncio.open_connection(*self._address)
        except OSError as error:
            raise Unreachable from error
        return self._streams

    def close(self) -> None:
        """Close the connection, if it is open."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


def _encode(method: str, target: str, body: Any, headers: Mapping[str, str]) -> bytes:
    content = b"" if body is None else body if isinstance(body, bytes) else orjson.dumps(body)
    fields = {"host": "localhost", **headers}
    if body is not None:
        fields.setdefault("content-type", "application/json")
        fields["content-length"] = str(len(content))
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode() + content


async def read_answer(reader: asyncio.StreamReader, method: str = "GET") -> Answer:
    """Read one response.

    Raises:
        EOFError: The connection ended before the response was complete.
    """
    status_line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(status_line.split(" ", 2)[1])
    fields = (line.partition(":") for line in lines if line)
    headers = {name.lower(): value.strip() for name, _, value in fields}
    if method == "HEAD" or status in _BODILESS:
        body = b""
    elif headers.get("transfer-encoding") == "chunked":
        body = await _read_chunks(reader)
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Answer(status, headers, body)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return body
