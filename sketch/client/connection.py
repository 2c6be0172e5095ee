"""Requests to one database of a service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from http.cookiejar import CookieJar
from typing import Final

import httpx

from sketch.client.problems import Closed, Unreachable
from sketch.client.resources import segment
from sketch.client.statistics import Statistics

__all__ = ["Connection", "Get"]

Get = Callable[[str, Mapping[str, str]], Awaitable[httpx.Response]]
"""Sends a GET for a path below the database, with some header fields."""

_CUT: Final = (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)
"""What it looks like if a kept connection is closed in the moment in which it is used again."""

_ADDRESSES: Final = 10_000
"""Addresses that are remembered."""


class _NoCookies(CookieJar):
    """Keeps no cookies: Portolan sets none, and to look for them took a third of httpx's time."""

    def extract_cookies(self, response: object, request: object) -> None:
        """Do nothing."""


class Connection:
    """Sends requests and counts what comes back.

    Args:
        base_url: Of the service, or of the cache in front of it.
        database: The database.
        statistics: Where to count.
        transport: What requests are sent by; None: the network.
        headers: Sent with each request.
        timeout_s: For each step of a request (seconds).
    """

    def __init__(
        self,
        base_url: str,
        database: str,
        statistics: Statistics,
        transport: httpx.AsyncBaseTransport | None,
        headers: Mapping[str, str],
        timeout_s: float,
    ) -> None:
        self._http = httpx.AsyncClient(
            base_url=f"{base_url.rstrip('/')}/v1/{segment(database)}/",
            transport=transport,
            headers=headers,
            timeout=timeout_s,
            cookies=_NoCookies(),
        )
        # Joined each time, they took httpx a third of the time that a request takes it.
        self._url = lru_cache(_ADDRESSES)(self._join)
        self._statistics = statistics
        self._refuses = False

    async def get(self, path: str, headers: Mapping[str, str]) -> httpx.Response:
        """Send a GET for a path below the database; see `send`."""
        return await self.send("GET", path, headers)

    async def post(self, path: str, content: bytes) -> httpx.Response:
        """Send JSON by a POST for a path below the database; see `send`."""
        return await self.send("POST", path, {"Content-Type": "application/json"}, content)

    async def send(
        self, method: str, path: str, headers: Mapping[str, str], content: bytes | None = None
    ) -> httpx.Response:
        """Send a request and return the answer, whatever it says.

        Raises:
            Closed: Requests are refused.
            Unreachable: There was no answer.
        """
        if self._refuses:
            raise Closed("the client is closed")
        try:
            response = await self._ask(method, path, headers, content)
        except httpx.RequestError as error:
            raise Unreachable(f"{method} {path}: {type(error).__name__}") from error
        self._statistics.bytes_received += len(response.content)
        return response

    async def _ask(
        self, method: str, path: str, headers: Mapping[str, str], content: bytes | None
    ) -> httpx.Response:
        """Send a request; a GET is sent once more if its connection was cut (RFC 9110, 9.2.2)."""
        url = self._url(path)
        try:
            return await self._http.request(method, url, headers=headers, content=content)
        except _CUT:
            if method != "GET":
                raise
        return await self._http.request(method, url, headers=headers)

    def _join(self, path: str) -> httpx.URL:
        return self._http.build_request("GET", path).url

    def refuse(self) -> None:
        """Send no more requests."""
        self._refuses = True

    async def close(self) -> None:
        """Close every connection."""
        await self._http.aclose()
