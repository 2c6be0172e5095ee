"""Comparison of answers in tests of access, and the operator's headers."""

from __future__ import annotations

from typing import Any

import httpx

from tests.process.caching.guarded import Guarded

VOLATILE = {"x-request-id", "server-timing", "date", "content-length"}
"""Fields that differ between any two answers; the body's length grows with the request's id."""


def comparable(answer: httpx.Response) -> tuple[int, Any, dict[str, str]]:
    """Return an answer without the fields that differ between any two answers."""
    body = {name: value for name, value in answer.json().items() if name != "instance"}
    headers = {name: value for name, value in answer.headers.items() if name not in VOLATILE}
    return answer.status_code, body, headers


async def operator_headers(running: Guarded) -> dict[str, str]:
    return await running.headers("operator", "admin")
