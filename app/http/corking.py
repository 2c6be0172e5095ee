"""An answer leaves in one piece: uvicorn writes its head and its body one after the other."""

from __future__ import annotations

from asyncio import AbstractEventLoop, Transport
from typing import Final

__all__ = ["Corked"]

_WORTH_COPYING: Final = 2**14
"""Bytes of a body up to which it is joined to the head: a system call costs more than that."""


class Corked:
    """The transport of one answer, which holds the head back until a body comes, or the turn ends.

    Args:
        transport: Of the connection.
        loop: Its event loop.
    """

    __slots__ = ("_head", "_loop", "_transport")

    def __init__(self, transport: Transport, loop: AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head: bytes | None = None

    def write(self, data: bytes) -> None:
        """Write the head, or a piece of the body."""
        head = self._head
        if head is None:
            self._head = data
            self._loop.call_soon(self._uncork)
        elif head and len(data) <= _WORTH_COPYING:
            self._head = b""
            self._send(head + data)
        else:
            self._uncork()
            self._send(data)

    def close(self) -> None:
        """Close the connection, once all has been sent."""
        self._uncork()
        self._transport.close()

    def is_closing(self) -> bool:
        """Whether the connection is closed, or about to be."""
        return self._transport.is_closing()

    def _uncork(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._send(head)

    def _send(self, data: bytes) -> None:
        if not self._transport.is_closing():  # the client may have gone
            self._transport.write(data)
