"""A subscriber of a change feed that notes what came when, for a process of its own.

In the process that serves, reading the stream would take time from the service it measures.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from time import perf_counter, time
from typing import Final

import httptools

from app.commands.demo.failed import Failed
from app.commands.demo.http1 import render
from mediator.changes.document import change_from

__all__ = ["lags_of_feed"]

_READ: Final = 1 << 20
_DATA: Final = b"data:"


def lags_of_feed(host: str, port: int, target: str, seconds: float) -> list[float]:
    """Follow a feed for a while; return how late each update came, in seconds.

    Raises:
        Failed: The feed ended.
    """
    came: list[tuple[float, bytes]] = []
    until = perf_counter() + seconds
    with socket.create_connection((host, port)) as connection:
        connection.sendall(render("GET", target, headers={"Accept": "text/event-stream"}))
        while (left := until - perf_counter()) > 0:
            connection.settimeout(left)
            try:
                data = connection.recv(_READ)
            except TimeoutError:
                break
            if not data:
                raise Failed("the feed ended")
            came.append((time(), data))
    return _lags(came)


def _lags(came: Sequence[tuple[float, bytes]]) -> list[float]:
    events = _Events()
    parser = httptools.HttpResponseParser(events)
    for events.now, data in came:
        parser.feed_data(data)
    return events.lags


class _Events:
    """What the parser of the answer calls; chunks end anywhere in a line."""

    def __init__(self) -> None:
        self.now = 0.0
        self.lags: list[float] = []
        self._rest = b""

    def on_body(self, body: bytes) -> None:
        *lines, self._rest = (self._rest + body).split(b"\n")
        for line in lines:
            if line.startswith(_DATA):
                change = change_from(line.removeprefix(_DATA), "")
                if change.kind == "update":  # what was created before comes as well
                    self.lags.append(self.now - change.time_us / 1e6)
