"""An origin on a real port, whose answers tests set and delay."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from app.http.compression import compress
from sketch.protocol.keys import tag_of
from tests.process.caching.serving import served

Message = dict[str, Any]


@dataclass
class Request:
    """A request that reached the origin."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Barrier:
    """Delays one answer: it was read when `reached`, and is sent when `opened`."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    opened: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Origin:
    """One record at each target, with a version.

    Attributes:
        url: Where it listens.
        versions: Versions by target, 1 by default.
        ttl_s: TTL of its answers.
        extra: Header fields that replace or extend those of the contract; None removes one.
        status: Status of answers to GET.
        compresses: Whether it compresses answers, however short they are.
        requests: The requests that reached it, in order.
    """

    url: str = ""
    versions: dict[str, int] = field(default_factory=dict)
    ttl_s: float = 60.0
    extra: dict[str, str | None] = field(default_factory=dict)
    status: int = 200
    compresses: bool = False
    requests: list[Request] = field(default_factory=list)
    waiting: list[Barrier] = field(default_factory=list)
    held: list[Barrier] = field(default_factory=list)
    events: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)

    def write(self, target: str) -> None:
        """Increase the version of a record."""
        self.versions[target] = self.versions.get(target, 1) + 1

    def reset(self) -> None:
        """Restore the initial answers."""
        self.ttl_s, self.status, self.extra, self.compresses = 60.0, 200, {}, False

    def hold(self) -> Barrier:
        """Delay the answer to the next GET after its read."""
        barrier = Barrier()
        self.waiting.append(barrier)
        self.held.append(barrier)
        return barrier

    def reached(self, target: str, method: str = "GET") -> int:
        """Return how many requests for a target reached the origin."""
        return sum(
            request.target == target and request.method == method for request in self.requests
        )

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        """Answer as an ASGI application."""
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        query = scope["query_string"].decode()
        target = scope["raw_path"].decode() + (f"?{query}" if query else "")
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        request = Request(scope["method"], target, headers, body)
        self.requests.append(request)
        if target.endswith("/changes"):
            await self._stream(send)
        else:
            await self._answer(request, send)

    async def _answer(self, request: Request, send: Any) -> None:
        status, headers, body = self._read(request)
        if self.waiting and request.method == "GET":
            barrier = self.waiting.pop(0)
            barrier.reached.set()
            await barrier.opened.wait()
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        if self.compresses:
            body = await compress(request.headers.get("accept-encoding", ""), raw, body)
            raw = [field for field in raw if field[0] != b"content-length"]
            raw.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send(
            {"type": "http.response.body", "body": b"" if request.method == "HEAD" else body}
        )

    def _read(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        version = self.versions.get(request.target, 1)
        body = b"version %d" % version
        tag = f'"j1.main:{version}"'
        if request.method not in ("GET", "HEAD"):
            return 200, {"cache-control": "no-store", "content-length": str(len(body))}, body
        headers = self._headers(request.target) | {"etag": tag}
        if self.status == 200 and request.headers.get("if-none-match") == tag:
            return 304, headers, b""
        return self.status, headers | {"content-length": str(len(body))}, body

    def _headers(self, target: str) -> dict[str, str]:
        end_us = round((time.time() + self.ttl_s) * 1_000_000)
        ttl = int(self.ttl_s)
        tag = tag_of_target(target)
        fields = {
            "cache-control": f"public, max-age=0, s-maxage={ttl}, must-revalidate, "
            "stale-while-revalidate=0",
            "cdn-cache-control": f"max-age={ttl}",
            "x-accel-expires": f"@{end_us // 1_000_000}",
            "portolan-expires": str(end_us),
            "xkey": tag,
            "surrogate-key": tag,
            "vary": "Prefer, Accept-Encoding" if self.compresses else "Prefer",
            "cache-status": f"Portolan; fwd=miss; ttl={ttl}",
            "content-type": "text/plain",
        }
        for name, value in self.extra.items():
            fields.pop(name, None)
            if value is not None:
                fields[name] = value
        return fields

    async def _stream(self, send: Any) -> None:
        headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        while event := await self.events.get():
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body"})


def tag_of_target(target: str) -> str:
    """Return the tag of a record at ``/v1/{database}/{class}/{id}``."""
    segments = target.partition("?")[0].split("/")
    database, class_name, id_ = [*segments[2:], "", "", ""][:3]
    return tag_of(database, f"{class_name}/{id_}#main")


@asynccontextmanager
async def small_origin() -> AsyncIterator[Origin]:
    """Start an origin on a port that the kernel picks."""
    origin = Origin()
    async with served(origin) as origin.url:
        try:
            yield origin
        finally:
            for barrier in origin.held:
                barrier.opened.set()
            origin.events.put_nowait(b"")
