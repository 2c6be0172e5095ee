"""The data application, traced; where traces go nowhere, nothing of this is in the way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from app.http.message import Receive, Scope, Send
from app.telemetry.context import under_way
from app.telemetry.traces import Traces

__all__ = ["Application", "traced"]

Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


def traced(app: Application, traces: Traces | None) -> Application:
    """Return an application whose requests are traced.

    Each request is a task of its own, or comes after the one before it in the same task: so what is
    under way is set, and never taken back. It is over when the request is told to be finished.
    """
    if traces is None:
        return app

    # No coroutine: it would be one more to be woken at every wait.
    def answer(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http":
            under_way.set(traces.begin(scope["headers"]))
        return app(scope, receive, send)

    return answer
