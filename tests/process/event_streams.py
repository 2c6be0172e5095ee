"""Reading server-sent events as a client."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from app.api.router import DataApi

__all__ = ["read_events", "read_text"]


async def read_events(
    api: DataApi,
    path: str,
    last: str,
    *headers: tuple[bytes, bytes],
    started: asyncio.Event | None = None,
) -> list[Any]:
    """Return the data of the events of `read_text`."""
    text = await read_text(api, path, last, *headers, started=started)
    blocks = [block for block in text.split("\n\n") if "data: " in block]
    return [orjson.loads(block.partition("data: ")[2]) for block in blocks]


async def read_text(
    api: DataApi,
    path: str,
    last: str,
    *headers: tuple[bytes, bytes],
    started: asyncio.Event | None = None,
) -> str:
    """Return the text of events up to `last`, then disconnect.

    Args:
        started: Set once the first bytes have arrived.
    """
    disconnected, text = asyncio.Event(), bytearray()

    async def receive() -> dict[str, Any]:
        await disconnected.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        text.extend(message.get("body", b""))
        if text and started is not None:
            started.set()
        if last.encode() in text:
            disconnected.set()

    scope = {"type": "http", "method": "GET", "raw_path": path.encode(), "query_string": b""}
    request_headers = [(b"accept", b"text/event-stream"), *headers]
    await api({**scope, "headers": request_headers}, receive, send)
    return text.decode()
