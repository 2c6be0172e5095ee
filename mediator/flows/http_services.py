"""The HTTP client of message flows: bounded in time and size, with checked addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
import orjson

from mediator.base.errors import Invalid, MediatorError, OutcomeUnknown, Unavailable
from mediator.flows.http_hosts import HttpHosts, Origin
from mediator.flows.http_request import HttpRequest

__all__ = ["CONNECT_S", "MAX_CONNECTIONS", "MAX_RESPONSE_BYTES", "TOTAL_S", "HttpServices"]

CONNECT_S: Final = 2.0
TOTAL_S: Final = 10.0
"""Seconds for one request, from the name lookup to the last byte of the response."""

MAX_RESPONSE_BYTES: Final = 2**20
MAX_CONNECTIONS: Final = 16
"""Maximum connections of a replica to one host."""

_KEEPALIVE_S: Final = 30.0
_RETRYABLE: Final = frozenset({408, 425, 429})
"""4xx status codes that allow a retry (RFC 9110, RFC 8470, RFC 6585)."""

_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


@dataclass(eq=False)
class HttpServices:
    """Sends requests to permitted hosts, with one connection pool per host.

    It keeps no cookies, follows no redirects, and takes no proxy from the environment.
    """

    hosts: HttpHosts = field(default_factory=HttpHosts)
    total_s: float = TOTAL_S
    _pools: dict[Origin, httpx.AsyncHTTPTransport] = field(default_factory=dict, init=False)

    async def send(self, request: HttpRequest) -> Any:
        """Return the response's JSON; None: no content.

        Raises:
            Invalid: The host may not be invoked, or its response cannot be used.
            Unavailable: The service does not respond, or refuses for now.
            OutcomeUnknown: The same, and the request may have taken effect.
        """
        try:
            async with asyncio.timeout(self.total_s):
                return await self._send(request)
        except TimeoutError:
            raise _unknown(request, f"It took more than {self.total_s:g} s.") from None

    async def close(self) -> None:
        for pool in self._pools.values():
            await pool.aclose()

    async def _send(self, request: HttpRequest) -> Any:
        for address in await self.hosts.addresses(request.origin):
            try:
                response = await self._pool(request.origin).handle_async_request(
                    _request_to(address, request, self.total_s)
                )
            except _NEVER_SENT:
                continue  # it may respond at another address
            except httpx.TransportError as error:
                raise _unknown(request, type(error).__name__) from error
            try:
                return await _content(request, response)
            except httpx.TransportError as error:
                raise _unknown(request, type(error).__name__) from error
            finally:
                await response.aclose()
        raise Unavailable(f"{request.origin} takes no connection.", system=request.origin.host)

    def _pool(self, origin: Origin) -> httpx.AsyncHTTPTransport:
        # One per host: hosts can share an address, but a connection has one certificate.
        pool = self._pools.get(origin)
        if pool is None:
            limits = httpx.Limits(max_connections=MAX_CONNECTIONS, keepalive_expiry=_KEEPALIVE_S)
            # From the environment, a transport takes only SSL_CERT_FILE; proxies are up to the
            # client.
            pool = self._pools[origin] = httpx.AsyncHTTPTransport(limits=limits)
        return pool


def _request_to(address: str, request: HttpRequest, total_s: float) -> httpx.Request:
    """Return a request to an address, even if the host's name resolves differently by now."""
    origin = request.origin
    timeout = {"connect": CONNECT_S, "read": total_s, "write": total_s, "pool": total_s}
    extensions: dict[str, Any] = {"timeout": timeout}
    if origin.host.strip("[]") != address:
        extensions["sni_hostname"] = origin.host
    headers: Mapping[str, str] = {
        "accept": "application/json",
        "accept-encoding": "identity",
        "user-agent": "portolan",
        **request.headers,
        "host": origin.authority,
    }
    url = httpx.URL(request.url).copy_with(host=address)
    return httpx.Request(
        request.method, url, headers=headers, content=request.body, extensions=extensions
    )


async def _content(request: HttpRequest, response: httpx.Response) -> Any:
    status = response.status_code
    if response.is_server_error or status in _RETRYABLE:
        raise _unknown(request, f"It answers {status}.")
    if not response.is_success:
        raise _invalid_response(request, f"answers {status}")
    content = await _read(request, response)
    if not content:
        return None
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise _invalid_response(request, "does not answer with JSON")
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise _invalid_response(request, "answers with compressed content, which was not accepted")
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        raise _invalid_response(request, "answers with invalid JSON") from None


async def _read(request: HttpRequest, response: httpx.Response) -> bytes:
    content = bytearray()
    async for chunk in response.aiter_raw():
        content += chunk
        if len(content) > MAX_RESPONSE_BYTES:
            raise _invalid_response(request, f"answers with more than {MAX_RESPONSE_BYTES} bytes")
    return bytes(content)


def _unknown(request: HttpRequest, reason: str) -> MediatorError:
    """Return the error of a request that was sent without receiving a response."""
    kind = Unavailable if request.is_safe else OutcomeUnknown
    return kind(f"{request.origin} does not answer: {reason}", system=request.origin.host)


def _invalid_response(request: HttpRequest, predicate: str) -> Invalid:
    return Invalid(f"{request.origin} {predicate}.")
