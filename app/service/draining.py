"""Draining: a process leaves its load balancer without a failed request.

The steps after SIGTERM, and their failures:

1. Readiness turns false. Load balancers send no new requests after their next health check; until
   then requests continue to arrive, over open connections and over new ones. All are answered, for
   `PORTOLAN_DRAIN_S`.
2. Every answer has ``Connection: close``, so that both sides close the persistent connections of
   proxies after an answer. If we closed an idle connection, a request could be on its way over it.
3. The listener is closed. The kernel then resets connections that it has accepted and we have not,
   and a proxy must not retry a request on them that is not idempotent. So the kernel first stops
   accepting: a filter on the socket drops all packets, as if the network had, and after a moment
   none waits. A client whose first packet was dropped resends it after a second, and is refused:
   nothing was sent, so any proxy goes elsewhere.
4. Requests in progress are finished, and streams end.

A second signal, or SIGINT, skips the waiting, as a person is waiting.
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
"""The program of the filter: ``ret #0``, which drops every packet."""

_ACCEPT_REMAINING_S: Final = 0.1


class Signals:
    """The signals that end a process.

    Attributes:
        drain: Whether the first signal leaves time to drain.
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
    """Turn readiness off, and continue to answer for `seconds`, or until `hurried` is set."""
    lifecycle.draining = True
    # uvicorn applies the headers of its configuration only once a second.
    server.config.encoded_headers.append(_CLOSE)
    server.server_state.default_headers = [*server.server_state.default_headers, _CLOSE]
    _log.info("draining for %g s", seconds)
    try:
        async with asyncio.timeout(seconds):
            await hurried.wait()
    except TimeoutError:
        return


async def stop_accepting(listener: socket.socket) -> None:
    """Stop the kernel from taking connections, and wait until we have accepted the earlier ones.

    Without socket filters, return at once.
    """
    program = ctypes.create_string_buffer(_DROP_ALL, len(_DROP_ALL))
    # struct sock_fprog: the number of instructions, and their address.
    reference = struct.pack("HL", 1, ctypes.addressof(program))
    try:
        listener.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, reference)
    except OSError:
        _log.debug("this system has no socket filters")
        return
    await asyncio.sleep(_ACCEPT_REMAINING_S)
