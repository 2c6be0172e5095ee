"""Requests with raw paths and bodies, which no HTTP client would send."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from app.api.router import DataApi


@dataclass
class Answer:
    """What an application sent; `complete` is false where it broke off."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    complete: bool = False

    def json(self) -> Any:
        return orjson.loads(self.body)


async def send_raw(
    app: DataApi,
    method: str,
    path: bytes,
    *,
    query: bytes = b"",
    headers: Sequence[tuple[bytes, bytes]] = (),
    pieces: Sequence[bytes] = (b"",),
    ends: bool = True,
) -> Answer:
    """Send a request in `pieces`; without `ends` the client goes away before the last one."""
    answer = Answer()
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": piece, "more_body": True} for piece in pieces
    ]
    if ends:
        messages[-1]["more_body"] = False
    messages.append({"type": "http.disconnect"})
    pending = iter(messages)

    async def receive() -> dict[str, Any]:
        return next(pending)

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            for name, value in message["headers"]:
                answer.headers[name.decode()] = value.decode("latin-1")
        else:
            answer.body += message["body"]
            answer.complete = not message.get("more_body", False)

    scope = {
        "type": "http",
        "method": method,
        "raw_path": path,
        "query_string": query,
        "headers": list(headers),
    }
    await app(scope, receive, send)
    return answer
