"""Requests to one database of a service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import httpx

from sketch.client.problems import Closed, Unreachable
from sketch.client.resources import segment
from sketch.client.statistics import Statistics

__all__ = ["Get", "ServiceConnection", "ServiceResponse"]


@dataclass(frozen=True, slots=True)
class ServiceResponse:
    """A response, decoded; the names of its header fields are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


Get = Callable[[str, Mapping[str, str]], Awaitable[ServiceResponse]]
"""Sends a GET for a path below the database, with header fields."""

_CONNECTION_CLOSED: Final = (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)
"""Errors of a pooled connection that the server closed just as it was reused."""

_MAX_CACHED_URLS: Final = 10_000

_GZIP_SUFFIX: Final = '-gzip"'
"""The end of the service's tags for compressed responses."""

_DEFAULTS: Final = {
    "accept": "*/*",
    "accept-encoding": "gzip, deflate",
    "user-agent": "portolan-client",
}


class ServiceConnection:
    """Sends requests and counts the bytes received.

    It uses a transport of httpx without httpx's client, whose redirects, cookies and passwords are
    not needed here and took more than twice the time of all other work.
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
        if httpx.URL(base_url).userinfo:
            raise ValueError("name user and password in headers (Authorization), not in base_url")
        base = f"{base_url.rstrip('/')}/v1/{segment(database)}/"
        self._transport = transport or httpx.AsyncHTTPTransport()
        self._headers = _DEFAULTS | _lower_names(headers)
        self._extensions = {"timeout": httpx.Timeout(timeout_s).as_dict()}
        # Parsing the URL each time took a third of a request's time.
        self._url = lru_cache(_MAX_CACHED_URLS)(lambda path: httpx.URL(base + path))
        self._statistics = statistics
        self._refuses = False

    async def get(self, path: str, headers: Mapping[str, str]) -> ServiceResponse:
        return await self.send("GET", path, headers)

    async def post(self, path: str, content: bytes) -> ServiceResponse:
        return await self.send("POST", path, {"Content-Type": "application/json"}, content)

    async def send(
        self, method: str, path: str, headers: Mapping[str, str], content: bytes | None = None
    ) -> ServiceResponse:
        """Return the response, whatever its status; raises `Closed` and `Unreachable`."""
        if self._refuses:
            raise Closed("the client is closed")
        try:
            try:
                response = await self._send_once(method, path, headers, content)
            except _CONNECTION_CLOSED:
                if method != "GET":
                    raise
                # A GET may be sent once more (RFC 9110, 9.2.2).
                response = await self._send_once(method, path, headers, content)
        except httpx.RequestError as error:
            raise Unreachable(f"{method} {path}: {type(error).__name__}") from error
        self._statistics.bytes_received += len(response.content)
        return response

    async def _send_once(
        self, method: str, path: str, headers: Mapping[str, str], content: bytes | None
    ) -> ServiceResponse:
        request = httpx.Request(
            method,
            self._url(path),
            headers=self._headers | _lower_names(headers),
            content=content,
            extensions=self._extensions,
        )
        response = await self._transport.handle_async_request(request)
        try:
            body = await response.aread()
        finally:
            await response.aclose()
        return ServiceResponse(response.status_code, _decode_headers(response.headers), body)

    def refuse(self) -> None:
        self._refuses = True

    async def close(self) -> None:
        await self._transport.aclose()


def _decode_headers(headers: httpx.Headers) -> dict[str, str]:
    """Return the fields of a decoded response, without the tag's mark of compression."""
    fields = dict(headers.items())
    if (tag := fields.get("etag")) is not None and tag.endswith(_GZIP_SUFFIX):
        fields["etag"] = f'{tag.removesuffix(_GZIP_SUFFIX)}"'
    return fields


def _lower_names(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
