"""Applications served on loopback, the replies they send, and one address for several."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn

from app.service.serving import IDLE_TIMEOUT_S
from tests.faults.conditions import WITHIN_S

Message = dict[str, Any]
App = Callable[..., Awaitable[None]]


@dataclass
class Reply:
    """A response; the connection is closed after its body unless it is complete."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    complete: bool = True


def problem(status: int, slug: str) -> Reply:
    document = {"type": f"/problems/{slug}", "title": slug, "status": status, "detail": "so it is"}
    headers = {"content-type": "application/problem+json", "cache-control": "no-store"}
    return Reply(status, json.dumps(document).encode(), headers)


async def send_reply(reply: Reply, send: Any) -> None:
    headers = [(name.encode(), value.encode()) for name, value in reply.headers.items()]
    if reply.complete and reply.status not in {204, 304}:
        headers.append((b"content-length", str(len(reply.body)).encode()))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body, "more_body": not reply.complete})


class Script:
    """An application that sends prepared replies in order, and repeats the last one."""

    def __init__(self, *replies: Reply) -> None:
        self._replies = [*replies]

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        await send_reply(self._replies[0], send)
        if len(self._replies) > 1:
            del self._replies[0]


class Endpoint:
    """One address for an application that a test chooses.

    Attributes:
        app: The application.
        url: The address.
    """

    app: App
    url = ""

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)


class _Server(uvicorn.Server):
    """A server that leaves the signals of the tests alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def served(app: App) -> AsyncIterator[str]:
    """Serve an application on loopback; yield its address."""
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_level="error",
        ws="none",
        timeout_graceful_shutdown=1,
        timeout_keep_alive=IDLE_TIMEOUT_S,  # else a request may cross the closing of its connection
    )
    server = _Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.create_task(server.serve([listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task


async def until(condition: Callable[[], bool]) -> None:
    """Poll until a condition holds."""
    async with asyncio.timeout(WITHIN_S):
        while not condition():  # noqa: ASYNC110  # there is no event to wait for
            await asyncio.sleep(0.001)
