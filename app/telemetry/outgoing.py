"""Requests of ours to caches, traced: the callee is told of the trace that they are part of."""

from __future__ import annotations

import httpx

from app.telemetry.traces import Traces

__all__ = ["TracedTransport"]


class TracedTransport(httpx.AsyncBaseTransport):
    """Sends requests, and makes a span of each.

    The span has no URL: it would show the ids of objects.

    Args:
        traces: Makes spans.
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
        failure: httpx.TransportError | None = None
        with self._traces.call(request.method, attributes) as fields:
            request.headers.update(fields)
            try:
                response = await self._inner.handle_async_request(request)
            except httpx.TransportError as error:
                attributes["error.type"] = type(error).__name__
                failure = error
            else:
                _note(attributes, response.status_code)
        if failure is not None:
            raise failure
        return response

    async def aclose(self) -> None:
        """Release every connection."""
        await self._inner.aclose()


def _note(attributes: dict[str, str | int], status: int) -> None:
    attributes["http.response.status_code"] = status
    if httpx.codes.is_error(status):
        attributes["error.type"] = str(status)
