"""Answers that are whole go out in one write, past the messages of ASGI.

uvicorn takes an answer as messages, looks at each field of its head by itself, and writes head and
body one after the other. An application finds among the extensions of its scope (ASGI,
"Extensions") what sends a whole answer at once. Who puts something between the application and its
server that looks at messages takes that away from the scope.
"""

from __future__ import annotations

from asyncio import Transport
from collections.abc import Callable
from typing import Final, TypeAlias

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

__all__ = ["EXTENSION", "SendWhole", "whole_answers"]

EXTENSION: Final = "portolan.whole_answer"
"""A dictionary, as all extensions are, with a `SendWhole` under ``send``."""

_WORTH_COPYING: Final = 2**14
"""Bytes of a body up to which it is joined to the head: a system call costs more than that."""

SendWhole: TypeAlias = Callable[[int, list[tuple[bytes, bytes]], bytes], bool]
"""Takes status, fields and body, and returns whether they were sent: otherwise messages will do.
The fields say how long the body is if there may be one, and nothing of the connection."""


def whole_answers(cycle: RequestResponseCycle) -> SendWhole:
    """Return what answers the request of a cycle."""

    def send(status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> bool:
        if cycle.flow.write_paused or cycle.access_log or cycle.response_started:
            return False
        if not cycle.disconnected:
            head = _head(cycle, status, headers)
            cycle.response_started = cycle.response_complete = True
            cycle.waiting_for_100_continue = False
            _write(cycle.transport, head, body)
            cycle.message_event.set()
            if not cycle.keep_alive:
                cycle.transport.close()
            cycle.on_response()
        return True

    return send


def _head(cycle: RequestResponseCycle, status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return the head; raises `ValueError` if a field would end it, or begin another one."""
    fields = [*cycle.default_headers, *headers]
    if not cycle.keep_alive:
        fields.append((b"connection", b"close"))
    lines = b"".join([b"%b: %b\r\n" % field for field in fields])
    if not lines.count(b"\r") == lines.count(b"\n") == len(fields) or b"\0" in lines:
        raise ValueError("a field of the answer has what no field may have")
    return b"%b%b\r\n" % (STATUS_LINE[status], lines)


def _write(transport: Transport, head: bytes, body: bytes) -> None:
    if transport.is_closing():
        return  # the client may have gone
    if len(body) <= _WORTH_COPYING:
        transport.write(head + body)
    else:
        transport.write(head)
        transport.write(body)
