"""Answers that tests of access compare, and the operator's headers."""

from __future__ import annotations

from typing import Any

import httpx

from tests.process.caching.guarded import Guarded

VOLATILE = {"x-request-id", "server-timing", "date", "content-length"}
"""What no two answers share; the body's length is that of the request's id, which grows."""


def comparable(answer: httpx.Response) -> tuple[int, Any, dict[str, str]]:
    """Everything that an answer holds, but for what no two answers share."""
    body = {name: value for name, value in answer.json().items() if name != "instance"}
    headers = {name: value for name, value in answer.headers.items() if name not in VOLATILE}
    return answer.status_code, body, headers


async def operate(running: Guarded) -> dict[str, str]:
    return await running.headers("operator", "admin")
