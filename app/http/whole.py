"""What is whole passes by the messages of ASGI: bodies of requests, and answers, in one write.

uvicorn takes an answer as messages, looks at each field of its head by itself, and writes head and
body one after the other. An application finds among the extensions of its scope (ASGI,
"Extensions") what sends a whole answer at once; and what takes a body that came with its head, for
which a message would have to be waited for. Who puts something between the application and its
server that looks at messages takes that away from the scope.
"""

from __future__ import annotations

from asyncio import Transport
from collections.abc import Callable
from typing import Any, Final, TypeAlias
from weakref import ref

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

__all__ = ["EXTENSION", "SendWhole", "TakeWhole", "Whole"]

EXTENSION: Final = "portolan.whole_answer"
"""A dictionary, as all extensions are, with a `SendWhole` under ``send`` and a `TakeWhole` under
``take``."""

_LINE: Final = b"%b: %b\r\n".__mod__
_WORTH_COPYING: Final = 2**14
"""Bytes of a body up to which it is joined to the head: a system call costs more than that."""

SendWhole: TypeAlias = Callable[[int, list[tuple[bytes, bytes]], bytes], bool]
"""Takes status, fields and body, and returns whether they were sent: otherwise messages will do.
The fields say how long the body is if there may be one, and nothing of the connection."""


TakeWhole: TypeAlias = Callable[[], bytes | None]
"""Returns the body of the request if all of it is there; None: messages will bring it."""


class Whole:
    """A request that is taken, and answered, without messages.

    The request has this among its extensions. So this only knows it weakly: in a cycle, all that is
    made for a request would be left to the collector.
    """

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = ref(cycle)

    def extension(self) -> dict[str, Any]:
        """Return what an application finds among the extensions of its scope."""
        return {EXTENSION: {"send": self.send, "take": self.take}}

    def take(self) -> bytes | None:
        """Take the body; see `TakeWhole`."""
        cycle = self._cycle()
        if cycle is None or cycle.more_body or cycle.disconnected or cycle.response_complete:
            return None
        if cycle.flow.read_paused:
            return None  # a message lets the connection be read again
        body, cycle.body = bytes(cycle.body), bytearray()
        cycle.message_event.clear()
        return body

    def send(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> bool:
        """Answer the request; see `SendWhole`."""
        cycle = self._cycle()
        if cycle is None or cycle.flow.write_paused or cycle.access_log or cycle.response_started:
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


def _head(cycle: RequestResponseCycle, status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return the head; raises `ValueError` if a field would end it, or begin another one."""
    fields = [*cycle.default_headers, *headers]
    if not cycle.keep_alive:
        fields.append((b"connection", b"close"))
    lines = b"".join(map(_LINE, fields))
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
