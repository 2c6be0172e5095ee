"""Streams of server-sent events (HTML, section 9.2) that go on until their client has gone."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from time import monotonic
from typing import Final

from app.http.message import Request
from mediator.base.errors import MediatorError

__all__ = ["POLL_S", "events_of"]

POLL_S: Final = 1.0
"""How soon it is seen that a client has gone."""

_HEARTBEAT_S: Final = 15.0


async def events_of(
    request: Request,
    next_events: Callable[[], Awaitable[bytes]],
    position: Callable[[], bytes],
    goes_on: Callable[[], bool],
    first: bytes = b"",
) -> AsyncGenerator[bytes, None]:
    """Yield events, and now and then the position, so that a client resumes from there.

    An error ends them: the client comes again, from what it has seen, and gets a problem.

    Args:
        next_events: Waits for events, `POLL_S` at most.
        position: Where the stream is.
        goes_on: Whether there may be more.
        first: Events that are there already.
    """
    sent_s = monotonic()
    try:
        if first:
            yield first
        # So that a client that loses the connection before any event resumes from here.
        yield _position_event(position())
        while goes_on() and not request.is_disconnected:
            chunk = await next_events()
            if not chunk and monotonic() - sent_s >= _HEARTBEAT_S:
                chunk = b": heartbeat\n" + _position_event(position())
            if chunk:
                yield chunk
                sent_s = monotonic()
    except MediatorError:
        return


def _position_event(position: bytes) -> bytes:
    """Return a position without an event (HTML, section 9.2.6: no data, no event)."""
    return b"id: %b\n\n" % position
