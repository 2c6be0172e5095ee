"""The transport of our own requests to caches, with a span and a `traceparent` for each."""

from __future__ import annotations

import httpx

from app.telemetry.traces import W3C, Traces

__all__ = ["TracedTransport"]


class TracedTransport(httpx.AsyncBaseTransport):
    """Sends requests, and makes a span of each.

    The span has no URL: it would show the ids of objects.

    Args:
        inner: What sends; a transport of its own unless given.
    """

    def __init__(self, traces: Traces, inner: httpx.AsyncBaseTransport | None = None) -> None:
        self._traces = traces
        self._inner = inner or httpx.AsyncHTTPTransport(trust_env=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """See `httpx.AsyncBaseTransport`."""
        attributes: dict[str, str | int] = {
            "http.request.method": request.method,
            "server.address": request.url.host,
        }
        if request.url.port is not None:
            attributes["server.port"] = request.url.port
        with self._traces.outgoing(request.method, attributes):
            W3C.inject(request.headers)
            try:
                response = await self._inner.handle_async_request(request)
            except httpx.TransportError as error:
                attributes["error.type"] = type(error).__name__
                raise
            attributes["http.response.status_code"] = response.status_code
            if response.is_error:
                attributes["error.type"] = str(response.status_code)
            return response

    async def aclose(self) -> None:
        """Release every connection."""
        await self._inner.aclose()
