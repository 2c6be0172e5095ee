"""Requests with raw paths and bodies, which no HTTP client would send."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import orjson

from app.http.message import Receive, Scope, Send

Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass
class Answer:
    """The response of an application; `complete` is false if it was cut off."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    complete: bool = False

    def json(self) -> Any:
        return orjson.loads(self.body)


async def send_raw(
    app: Application,
    method: str,
    path: bytes,
    *,
    query: bytes = b"",
    headers: Sequence[tuple[bytes, bytes]] = (),
    pieces: Sequence[bytes] = (b"",),
    ends: bool = True,
    stays: bool = True,
    meanwhile: Callable[[], Awaitable[object]] | None = None,
) -> Answer:
    """Send a request in `pieces`; without `ends` the client disconnects before the last one.

    Otherwise it waits for the whole response, or without `stays` only for its first chunk.

    Args:
        meanwhile: Awaited after the first chunk of the response.
    """
    answer, answered = Answer(), asyncio.Event()
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": piece, "more_body": True} for piece in pieces
    ]
    if ends:
        messages[-1]["more_body"] = False
    pending = iter(messages)

    async def receive() -> dict[str, Any]:
        if (message := next(pending, None)) is not None:
            return message
        if ends:
            await answered.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            for name, value in message["headers"]:
                answer.headers[name.decode()] = value.decode("latin-1")
            return
        is_first = not answer.body
        answer.body += message["body"]
        answer.complete = not message.get("more_body", False)
        if answer.complete or not stays:
            answered.set()
        if is_first and meanwhile is not None:
            await meanwhile()

    scope = {
        "type": "http",
        "method": method,
        "path": path.decode("latin-1"),
        "raw_path": path,
        "query_string": query,
        "headers": list(headers),
    }
    await app(scope, receive, send)
    return answer
