"""Transports that lose replies: the service has executed the requests unnoticed."""

from __future__ import annotations

import httpx

from tests.process.clients.both import Kind

__all__ = ["AsynchronousLosses", "BlockingLosses", "losing_transport"]


class _Losses:
    """Counts the requests, and the replies that are still to be lost."""

    def __init__(self, losses: int) -> None:
        super().__init__()
        self.remaining = losses
        self.requests = 0

    def lose(self) -> bool:
        self.requests += 1
        self.remaining -= 1
        return self.remaining >= 0


class BlockingLosses(_Losses, httpx.HTTPTransport):
    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = super().handle_request(request)
        if not self.lose():
            return response
        response.read()
        response.close()
        raise httpx.ReadError("the reply was lost", request=request)


class AsynchronousLosses(_Losses, httpx.AsyncHTTPTransport):
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await super().handle_async_request(request)
        if not self.lose():
            return response
        await response.aread()
        await response.aclose()
        raise httpx.ReadError("the reply was lost", request=request)


def losing_transport(kind: Kind, losses: int) -> BlockingLosses | AsynchronousLosses:
    """Return a transport that loses the first replies."""
    return BlockingLosses(losses) if kind == "blocking" else AsynchronousLosses(losses)
