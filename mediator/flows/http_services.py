"""The HTTP client of message flows: bounded in time and size, with addresses checked."""

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

__all__ = ["CONNECT_S", "LARGEST_RESPONSE", "MOST_CONNECTIONS", "TOTAL_S", "HttpServices"]

CONNECT_S: Final = 2.0
TOTAL_S: Final = 10.0
"""Seconds for one request, from the look-up of the name to the last byte of the response."""

LARGEST_RESPONSE: Final = 2**20
"""Bytes."""

MOST_CONNECTIONS: Final = 16
"""Of a replica to one host."""

_KEPT_S: Final = 30.0
_RETRIED: Final = frozenset({408, 425, 429})
"""4xx that say: later (RFC 9110, RFC 8470, RFC 6585)."""

_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


@dataclass(eq=False)
class HttpServices:
    """Sends requests to the hosts that are allowed; one pool of connections for each of them.

    It keeps no cookies, follows no redirects, and takes no proxy from the environment.
    """

    hosts: HttpHosts = field(default_factory=HttpHosts)
    total_s: float = TOTAL_S
    _pools: dict[Origin, httpx.AsyncHTTPTransport] = field(default_factory=dict, init=False)

    async def send(self, request: HttpRequest) -> Any:
        """Return the JSON of the response; None: it has no content.

        Raises:
            Invalid: The host may not be invoked, or its response cannot be used.
            Unavailable: The service does not answer, or not now.
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
                    _bound_to(address, request, self.total_s)
                )
            except _NEVER_SENT:
                continue  # it may answer at another address
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
        # One for each host: hosts may share an address, and a connection is for one certificate.
        pool = self._pools.get(origin)
        if pool is None:
            limits = httpx.Limits(max_connections=MOST_CONNECTIONS, keepalive_expiry=_KEPT_S)
            # Of the environment a transport takes SSL_CERT_FILE; proxies are the client's.
            pool = self._pools[origin] = httpx.AsyncHTTPTransport(limits=limits)
        return pool


def _bound_to(address: str, request: HttpRequest, total_s: float) -> httpx.Request:
    """Return a request to an address, whatever the name of its host stands for meanwhile."""
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
    if response.is_server_error or status in _RETRIED:
        raise _unknown(request, f"It answers {status}.")
    if not response.is_success:
        raise _useless(request, f"answers {status}")
    content = await _read(request, response)
    if not content:
        return None
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise _useless(request, "does not answer with JSON")
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise _useless(request, "answers with compressed content, which was not accepted")
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        raise _useless(request, "answers with what is no JSON") from None


async def _read(request: HttpRequest, response: httpx.Response) -> bytes:
    content = bytearray()
    async for chunk in response.aiter_raw():
        content += chunk
        if len(content) > LARGEST_RESPONSE:
            raise _useless(request, f"answers with more than {LARGEST_RESPONSE} bytes")
    return bytes(content)


def _unknown(request: HttpRequest, why: str) -> MediatorError:
    """Return the error of a request that was sent, and whose response was not received."""
    kind = Unavailable if request.is_safe else OutcomeUnknown
    return kind(f"{request.origin} does not answer: {why}", system=request.origin.host)


def _useless(request: HttpRequest, what: str) -> Invalid:
    return Invalid(f"{request.origin} {what}.")
