"""What is no HTTP at all, or never comes to its end, is refused in the words of everything else."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.http.problems import HEAD_TOO_LARGE, INVALID, PROBLEM_JSON, Problem, ProblemType
from app.http.whole import Whole

__all__ = ["HEAD_LIMIT", "Protocol"]

HEAD_LIMIT: Final = 128 * 2**10
"""Bytes that a head may go on for, after the piece of the connection in which it began."""


class Protocol(HttpToolsProtocol):
    """uvicorn's protocol, whose refusals are problems (RFC 9457), and whose heads have an end.

    The parser keeps whatever comes of a head, so one without an end would take all memory.
    """

    _in_head = False
    _waited = 0

    def data_received(self, data: bytes) -> None:
        """Take what came, and see how much that was since the piece in which a head began."""
        self._waited += len(data)
        super().data_received(data)
        if self._in_head and self._waited > HEAD_LIMIT:
            self._refuse(HEAD_TOO_LARGE, f"The head goes on after {HEAD_LIMIT} bytes.")

    def on_message_begin(self) -> None:
        """Begin a head."""
        self._in_head, self._waited = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """End a head: what follows is a body, which has a limit of its own."""
        self._in_head = False
        super().on_headers_complete()
        if self.cycle is not None and self.cycle.scope is self.scope:
            self.scope["extensions"] = Whole(self.cycle).extension()

    def send_400_response(self, msg: str) -> None:
        """Refuse what could not be parsed, and close the connection."""
        self._refuse(INVALID, msg)

    def _refuse(self, type_: ProblemType, detail: str) -> None:
        body = Problem(type_, detail).body()
        head = (
            f"HTTP/1.1 {type_.status} {HTTPStatus(type_.status).phrase}\r\n"
            f"content-type: {PROBLEM_JSON}\r\n"
            f"content-length: {len(body)}\r\n"
            "cache-control: no-store\r\n"
            "connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
