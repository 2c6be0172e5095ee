"""The data application, traced; where traces go nowhere, nothing of this is in the way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from app.http.message import Receive, Scope, Send
from app.telemetry.traces import Traces

__all__ = ["Application", "traced"]

Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


def traced(app: Application, traces: Traces | None) -> Application:
    """Return an application whose requests are traced."""
    if traces is None:
        return app

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        trace = traces.begin(scope["headers"]) if scope["type"] == "http" else None
        if trace is None:
            await app(scope, receive, send)
            return
        with trace:
            await app(scope, receive, send)

    return answer
