"""The arguments and requests of both clients for httpx."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, TypeAlias

import httpx

from portolan_client.calls import Call, Reply
from portolan_client.encoding import path_of
from portolan_client.version import __version__

__all__ = [
    "Credential",
    "admin_url",
    "data_url",
    "http_options",
    "pinned_headers",
    "reply_of",
    "request_of",
]

Credential: TypeAlias = str | Callable[[], str]
"""A key or a token; or a function that returns it for each request, because tokens expire."""

_USER_AGENT: Final = f"portolan-client/{__version__}"


class _Bearer(httpx.Auth):
    """Sends a key or a token (RFC 6750)."""

    def __init__(self, credential: Credential) -> None:
        self._credential = credential

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        credential = self._credential
        token = credential if isinstance(credential, str) else credential()
        request.headers["Authorization"] = f"Bearer {token}"
        yield request


def http_options(
    url: str, credential: Credential | None, timeout_s: float, headers: Mapping[str, str] | None
) -> dict[str, Any]:
    """Return the arguments of an httpx client, except its transport."""
    return {
        "base_url": url,
        "auth": None if credential is None else _Bearer(credential),
        "timeout": timeout_s,
        "headers": {"User-Agent": _USER_AGENT, **(headers or {})},
    }


def pinned_headers(headers: Mapping[str, str] | None, version: int | None) -> Mapping[str, str]:
    """Add the version of the schema that requests are pinned to, if any."""
    pin = {} if version is None else {"Portolan-Schema": str(version)}
    return {**(headers or {}), **pin}


def data_url(base_url: str, database: str) -> str:
    return f"{base_url.rstrip('/')}/v1/{path_of(database)}/"


def admin_url(base_url: str) -> str:
    return f"{base_url.rstrip('/')}/admin/v1/"


def request_of(http: httpx.Client | httpx.AsyncClient, call: Call[Any]) -> httpx.Request:
    return http.build_request(call.method, call.path, headers=call.headers, content=call.content)


def reply_of(response: httpx.Response) -> Reply:
    return Reply(response.status_code, dict(response.headers), response.content)
