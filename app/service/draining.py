"""Draining: a process leaves its load balancer without a failed request.

What happens after SIGTERM, and what could fail at each step:

1. Readiness turns false first. Load balancers send nothing new from their next look on; until then
   requests go on coming in, over connections that are there and over new ones. All are answered,
   for `PORTOLAN_DRAIN_S`.
2. Every answer says ``Connection: close``, so that the connections that proxies keep open are given
   up by both sides at the end of an answer. If we closed them while they are idle, a request might
   be on its way over them.
3. Then the listener is closed. The kernel resets connections that it has accepted and we have not,
   which a proxy may not try again if a request that is not idempotent was sent. So first it
   takes no more: a filter on the socket drops all that comes in, as if the network had, and
   after a moment none waits. A client whose first packet was dropped sends it again after a
   second, and is refused: nothing was sent, so any proxy goes elsewhere.
4. Requests under way are finished, and streams end.

A second signal, or SIGINT, skips the waiting: a person sits before it.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import signal
import socket
import struct
from typing import Final

import uvicorn

from app.admin.api.health import Lifecycle

__all__ = ["Signals", "drain", "stop_accepting"]

_log = logging.getLogger("portolan.draining")

_CLOSE: Final = (b"connection", b"close")
_ATTACH_FILTER: Final = 26
"""SO_ATTACH_FILTER of Linux, which Python does not name."""

_DROP_ALL: Final = struct.pack("HBBI", 0x06, 0, 0, 0)
"""The program of the filter: ``ret #0``, of every packet nothing is kept."""

_ACCEPTED_WITHIN_S: Final = 0.1


class Signals:
    """The signals that end a process.

    Attributes:
        drain: Whether the first one leaves time to drain.
    """

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.hurried = asyncio.Event()
        self.drain = False

    def listen(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._end, True)
        loop.add_signal_handler(signal.SIGINT, self._end, False)

    def _end(self, drain: bool) -> None:
        if self.ended.is_set():
            self.hurried.set()
            return
        self.drain = drain
        self.ended.set()


async def drain(
    server: uvicorn.Server, lifecycle: Lifecycle, seconds: float, hurried: asyncio.Event
) -> None:
    """Turn readiness off, and go on answering for so many seconds, or until `hurried` is set."""
    lifecycle.draining = True
    # uvicorn takes over the headers of its configuration only once a second.
    server.config.encoded_headers.append(_CLOSE)
    server.server_state.default_headers = [*server.server_state.default_headers, _CLOSE]
    _log.info("draining for %g s", seconds)
    try:
        async with asyncio.timeout(seconds):
            await hurried.wait()
    except TimeoutError:
        return


async def stop_accepting(listener: socket.socket) -> None:
    """Have the kernel take no more connections, and let those be accepted that it has taken.

    Where that cannot be, the listener is closed as it is.
    """
    program = ctypes.create_string_buffer(_DROP_ALL, len(_DROP_ALL))
    # struct sock_fprog: the number of instructions, and their address.
    reference = struct.pack("HL", 1, ctypes.addressof(program))
    try:
        listener.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, reference)
    except OSError:
        _log.debug("this system has no socket filters")
        return
    await asyncio.sleep(_ACCEPTED_WITHIN_S)
