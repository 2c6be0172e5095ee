"""The size limit of request heads, however they are split."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from uvicorn import Config
from uvicorn.server import ServerState

from app.http.uvicorn_protocol import HEAD_LIMIT, Http1Protocol

HEAD = b"GET /live HTTP/1.1\r\nHost: localhost\r\n"
FIELD = b"X: " + b"x" * 1000 + b"\r\n"
ENDLESS = {
    "fields": (HEAD, FIELD),
    "a field": (HEAD + b"X: ", b"x" * 1000),
    "a name": (HEAD, b"x" * 1000),
    "a target": (b"GET /live?", b"x" * 1000),
    "after a complete head": (HEAD + b"\r\n" + HEAD, FIELD),
}


class RecordingTransport(asyncio.Transport):
    """A transport that records its writes."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.written = bytearray()
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        """Do nothing: pipelined requests wait."""

    resume_reading = pause_reading


async def app(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def feed(pieces: list[bytes]) -> RecordingTransport:
    """Feed a connection until it is closed."""
    config = Config(app, log_config=None, lifespan="off", http=Http1Protocol)
    config.load()
    protocol, transport = Http1Protocol(config, ServerState(), {}), RecordingTransport()
    protocol.connection_made(transport)
    for piece in pieces:
        if not transport.closed:
            protocol.data_received(piece)
        await asyncio.sleep(0)
    for task in list(protocol.tasks):
        await task
    closed = transport.closed
    protocol.connection_lost(None)  # it closes the connection as well
    transport.closed = closed
    return transport


@pytest.mark.parametrize(("start", "chunk"), ENDLESS.values(), ids=ENDLESS)
async def test_a_head_that_never_ends_is_refused(start: bytes, chunk: bytes) -> None:
    transport = await feed([start, *[chunk] * 300])
    assert transport.closed
    assert transport.written.count(b"HTTP/1.1 431 ") == 1
    assert b'"/problems/head-too-large"' in transport.written


@given(st.integers(500, 200_000), st.integers(1, 4))
@settings(max_examples=30)
def test_heads_within_the_limit_are_accepted_in_any_pieces(size: int, requests: int) -> None:
    data = (HEAD + b"X: " + b"x" * (HEAD_LIMIT - 1000) + b"\r\n\r\n") * requests
    transport = asyncio.run(feed([data[at : at + size] for at in range(0, len(data), size)]))
    assert not transport.closed
    assert transport.written.count(b"HTTP/1.1 204 ") == requests


async def test_the_limit_of_heads_does_not_hold_for_bodies() -> None:
    head = b"PUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: 500000\r\n\r\n"
    transport = await feed([head, *[b"x" * 1000] * 500])
    assert not transport.closed
    assert transport.written.startswith(b"HTTP/1.1 204 ")


async def test_other_protocols_than_http_are_refused() -> None:
    assert (await feed([b"nonsense\r\n\r\n"])).written.startswith(b"HTTP/1.1 400 ")
