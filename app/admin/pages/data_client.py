"""A client of the data API, inside this process and with the caller's own credentials.

A page thus shows what a client would get: the same checks, the same values, the same problems.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import httpx
import orjson
from fastapi import Request

from app.security.authentication import as_bearer
from mediator.base.errors import NotFound, Unavailable

__all__ = ["DataApiRefused", "Pairs", "exchange", "select_database", "send"]

Pairs: TypeAlias = Sequence[tuple[str, str]]
"""Parameters of an address, in order; names can repeat."""


class DataApiRefused(Exception):
    """The data API refused; `problem` is its document."""

    def __init__(self, problem: dict[str, Any]) -> None:
        super().__init__(problem["detail"])
        self.problem = problem


async def send(
    request: Request,
    method: str,
    path: str,
    parameters: Mapping[str, str] | Pairs | None = None,
    body: bytes | None = None,
) -> dict[str, Any]:
    """Send a request to the data API; return its document. See `exchange`."""
    answer = await exchange(request, method, path, parameters, body)
    document: dict[str, Any] = orjson.loads(answer.content)
    return document


async def exchange(
    request: Request,
    method: str,
    path: str,
    parameters: Mapping[str, str] | Pairs | None = None,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> httpx.Response:
    """Send a request to the data API; return its answer.

    `path` is below ``/v1/``, percent-encoded; `body` is JSON as it was typed; the data API checks
    it.

    Raises:
        DataApiRefused: It answered with a problem.
        Unavailable: This process serves no data.
    """
    data = request.app.state.data
    if data is None:
        raise Unavailable("This process serves no data.", system="data", retry_after_s=60)
    all_headers = dict(headers or {})
    if "authorization" in request.headers:  # browsers send Basic, which the data port refuses
        all_headers["authorization"] = as_bearer(request.headers["authorization"])
    if body is not None:
        all_headers["content-type"] = "application/json"
    transport = httpx.ASGITransport(data)
    async with httpx.AsyncClient(transport=transport, base_url="http://portolan/v1/") as client:
        pairs = _pairs(parameters)
        answer = await client.request(method, path, params=pairs, headers=all_headers, content=body)
    if answer.is_error:
        raise DataApiRefused(orjson.loads(answer.content))
    return answer


def _pairs(parameters: Mapping[str, str] | Pairs | None) -> httpx.QueryParams | None:
    if parameters is None or isinstance(parameters, Mapping):
        return httpx.QueryParams(parameters) if parameters else None
    return httpx.QueryParams(list(parameters))


async def select_database(request: Request, name: str | None) -> tuple[list[dict[str, Any]], str]:
    """Return all databases and the selected one: the named one, or the first; "" if none.

    Raises:
        NotFound: No database has that name.
    """
    databases: list[dict[str, Any]] = await request.app.state.control.databases()
    names = [database["name"] for database in databases]
    if name is None:
        return databases, names[0] if names else ""
    if name not in names:
        raise NotFound("There is no such database.")
    return databases, name
