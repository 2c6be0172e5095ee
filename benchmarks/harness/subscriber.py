"""A subscriber of a change feed that records times of arrival, for a separate process.

In the process that serves, reading the stream would take time from the measured service.
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
    """Follow a feed for a while; return the lag of each update (seconds).

    Raises:
        Failed: The feed ended.
    """
    chunks: list[tuple[float, bytes]] = []
    until = perf_counter() + seconds
    with socket.create_connection((host, port)) as connection:
        connection.sendall(render("GET", target, headers={"Accept": "text/event-stream"}))
        while (remaining_s := until - perf_counter()) > 0:
            connection.settimeout(remaining_s)
            try:
                data = connection.recv(_READ)
            except TimeoutError:
                break
            if not data:
                raise Failed("the feed ended")
            chunks.append((time(), data))
    return _lags(chunks)


def _lags(chunks: Sequence[tuple[float, bytes]]) -> list[float]:
    events = _Events()
    parser = httptools.HttpResponseParser(events)
    for events.now, data in chunks:
        parser.feed_data(data)
    return events.lags


class _Events:
    """The callbacks of the response's parser; chunks end anywhere in a line."""

    def __init__(self) -> None:
        self.now = 0.0
        self.lags: list[float] = []
        self._partial_line = b""

    def on_body(self, body: bytes) -> None:
        *lines, self._partial_line = (self._partial_line + body).split(b"\n")
        for line in lines:
            if line.startswith(_DATA):
                change = change_from(line.removeprefix(_DATA), "")
                if change.kind == "update":  # earlier creations come as well
                    self.lags.append(self.now - change.time_us / 1e6)
