"""What is no HTTP at all is refused in the same words as everything else."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.http.problems import INVALID, PROBLEM_JSON, Problem

__all__ = ["Protocol"]


class Protocol(HttpToolsProtocol):
    """uvicorn's protocol, whose refusals are problems (RFC 9457)."""

    def send_400_response(self, msg: str) -> None:
        """Refuse what could not be parsed, and close the connection."""
        body = Problem(INVALID, msg).body()
        head = (
            "HTTP/1.1 400 Bad Request\r\n"
            f"content-type: {PROBLEM_JSON}\r\n"
            f"content-length: {len(body)}\r\n"
            "cache-control: no-store\r\n"
            "connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
