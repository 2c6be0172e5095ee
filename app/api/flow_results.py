"""Messages of a flow that have ended: as JSON, and as server-sent events (HTML, section 9.2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any, Final

import orjson

from app.api.server_sent_events import events_of
from app.http.message import Request
from mediator.base.errors import Unavailable
from mediator.flows.queue import EndedMessage, EndedMessages, FlowKey
from mediator.flows.service import FlowService

__all__ = ["ResultStream", "error_of", "state_of"]

_POLL_S: Final = 0.25
_EVENTS_AT_ONCE: Final = 100


@dataclass(eq=False)
class ResultStream:
    """What has ended, then what ends.

    Args:
        _require: Raises an error when the flow may not be shown any more.
        _ended: What is sent first.
    """

    _flows: FlowService
    _key: FlowKey
    _require: Callable[[], None]
    _ended: EndedMessages

    def events(self, request: Request) -> AsyncGenerator[bytes, None]:
        """Return events until the client has gone, the flow is dropped, or the process ends."""
        return events_of(
            request,
            self._next_events,
            lambda: str(self._ended.position).encode(),
            lambda: not self._flows.is_ending,
            _events(self._ended),
        )

    async def _next_events(self) -> bytes:
        await asyncio.sleep(_POLL_S)
        try:
            self._require()
            self._ended = await self._flows.results(
                self._key, self._ended.position, _EVENTS_AT_ONCE
            )
        except Unavailable:  # the next time may succeed
            return b""
        return _events(self._ended)


def state_of(ticket: str, state: str, document: Any) -> dict[str, Any]:
    """Return what became of a message as JSON; `document` is its result, or its dead letter."""
    shown: dict[str, Any] = {"ticket": ticket, "state": state}
    if state == "failed":
        shown |= {"error": error_of(document)}
    elif state == "done":
        shown |= {"result": document}
    return shown


def error_of(letter: Any) -> dict[str, Any]:
    """Return the reason in a dead letter."""
    return {"detail": letter["detail"], "errors": letter["errors"]}


def _events(ended: EndedMessages) -> bytes:
    return b"".join(map(_event, ended.items))


def _event(message: EndedMessage) -> bytes:
    data = orjson.dumps(state_of(message.ticket, message.end, message.document))
    position = str(message.position).encode()
    return b"id: %b\nevent: message\ndata: %b\n\n" % (position, data)
