"""The shop whose flows can invoke an HTTP service on this machine, and requests of plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

RECEIVE: Final = {"op": "receive", "attributes": {"name": "string", "number": "string"}}
TOTAL_S: Final = 60.0
"""Maximum seconds of a request in tests, on a machine that can be busy for seconds."""

HANGING_S: Final = 1.5
"""Maximum seconds of a request that is not answered."""


def get(url: str) -> dict[str, Any]:
    return {"op": "invoke", "http": {"method": "GET", "url": url}, "to": "found"}


def post(url: str) -> dict[str, Any]:
    body = {"of": {"$": "/number"}}
    return {"op": "invoke", "http": {"method": "POST", "url": url, "body": body}, "to": "answer"}


def messages(names: Sequence[str]) -> list[dict[str, Any]]:
    return [{"name": name, "number": f"m{i}"} for i, name in enumerate(names, 1)]
