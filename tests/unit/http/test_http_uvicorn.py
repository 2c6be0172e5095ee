"""Direct responses: one write to the transport, with the same bytes as uvicorn's."""

from __future__ import annotations

import asyncio
import gc
import re
import tomllib
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
import uvicorn
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from app.http.message import DIRECT_EXTENSION, Request, read_body
from app.http.problems import HttpError
from app.http.uvicorn_protocol import Http1Protocol
from tests.unit.http.test_http_heads import RecordingTransport

ROOT = Path(__file__).parents[3]
GET = b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n"
PUT = b"PUT /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
POST = b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n"
FIELDS = [(b"etag", b'"1"'), (b"content-length", b"4")]


class RecordedWrites(RecordingTransport):
    """A transport that records each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: Any) -> None:
        assert not self.closed
        self.writes.append(bytes(data))


class Server:
    """A connection to a server that answers each request directly or by ASGI messages."""

    def __init__(self, *, direct: bool, status: int = 200, body: bytes = b"body") -> None:
        self._direct, self._status, self._body = direct, status, body
        self.fields = FIELDS if status == 200 else []
        self.sent: list[bool] = []
        self.transport = RecordedWrites()
        config = Config(
            self._app, interface="asgi3", log_config=None, access_log=False, http=Http1Protocol
        )
        config.load()
        state = ServerState()
        state.default_headers = [(b"date", b"now")]
        self.protocol = Http1Protocol(config, state, {})
        self.protocol.connection_made(self.transport)

    async def send(self, request: bytes) -> list[bytes]:
        """Return the writes that answer a request."""
        self.transport.writes.clear()
        self.protocol.data_received(request)
        while self.protocol.tasks:
            await asyncio.gather(*self.protocol.tasks)
        return self.transport.writes

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        body = b"" if scope["method"] == "HEAD" else self._body
        if self._direct:
            self.sent.append(
                scope["extensions"][DIRECT_EXTENSION]["send"](self._status, self.fields, body)
            )
        if not self._direct or not self.sent[-1]:
            start = {"type": "http.response.start", "status": self._status, "headers": self.fields}
            await send(start)
            await send({"type": "http.response.body", "body": body})
        assert (await receive())["type"] == "http.disconnect"


@pytest.mark.parametrize(
    "request_",
    [
        GET,
        GET.replace(b"GET", b"HEAD"),
        GET.replace(b"1.1", b"1.0"),
        GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
        GET * 3,
        PUT,
        PUT + b"body" + GET,
    ],
    ids=["get", "head", "old", "last", "pipelined", "not yet sent", "then another"],
)
@pytest.mark.parametrize("status", [200, 204, 304])
async def test_an_answer_reads_as_uvicorn_writes_it(request_: bytes, status: int) -> None:
    body = b"body" if status == 200 else b""
    ours, theirs = (Server(direct=direct, status=status, body=body) for direct in (True, False))
    assert b"".join(await ours.send(request_)) == b"".join(await theirs.send(request_))
    assert set(ours.sent) == {True}
    assert ours.transport.closed == theirs.transport.closed


async def test_an_answer_is_one_write() -> None:
    server = Server(direct=True)
    for _ in range(2):
        (write,) = await server.send(GET)
        assert write.startswith(b"HTTP/1.1 200 OK\r\ndate: now\r\n")
        assert write.endswith(b"\r\n\r\nbody")


async def test_a_large_body_is_not_copied() -> None:
    server = Server(direct=True, body=bytes(1 << 20))
    assert [len(write) for write in await server.send(GET)][1:] == [1 << 20]


@pytest.mark.parametrize("value", [b"1\r\nx: 2", b"1\n", b"\r1", b"1\0"])
async def test_a_field_value_cannot_start_another_field(value: bytes) -> None:
    server = Server(direct=True)
    server.fields = [(b"etag", value)]
    assert b"etag" not in b"".join(await server.send(GET))


async def test_nothing_is_sent_to_a_disconnected_client() -> None:
    server = Server(direct=True)
    server.protocol.data_received(GET)
    server.protocol.connection_lost(None)
    await asyncio.gather(*server.protocol.tasks)
    assert server.transport.writes == []
    assert server.sent == [True]


async def test_nothing_is_sent_on_a_connection_that_is_being_closed() -> None:
    server = Server(direct=True)
    server.protocol.data_received(GET)
    server.transport.close()
    await asyncio.gather(*server.protocol.tasks)
    assert server.transport.writes == []
    assert server.sent == [True]


async def test_a_client_that_does_not_read_is_waited_for() -> None:
    server = Server(direct=True)
    server.protocol.pause_writing()
    server.protocol.data_received(GET)
    await asyncio.sleep(0)
    assert server.sent == [False]
    assert server.transport.writes == []
    server.protocol.resume_writing()
    await asyncio.gather(*server.protocol.tasks)
    assert b"".join(server.transport.writes).endswith(b"body")


class Taker(Server):
    """A server whose application takes the body of a request directly, or receives messages."""

    def __init__(self) -> None:
        super().__init__(direct=True)
        self.bodies: list[bytes | None] = []
        self.received: list[bytes] = []

    def take(self) -> bytes | None:
        """Take the body of the latest request."""
        scope: Any = self.protocol.scope
        body: bytes | None = scope["extensions"][DIRECT_EXTENSION]["take"]()
        return body

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        self.bodies.append(scope["extensions"][DIRECT_EXTENSION]["take"]())
        if self.bodies[-1] is None:
            message = await receive()
            while message.get("more_body"):
                self.received.append(message["body"])
                message = await receive()
            self.received.append(message.get("body", b"gone"))
        await super()._app(scope, receive, send)


async def test_a_body_that_came_with_its_head_is_taken_at_once() -> None:
    server = Taker()
    for _ in range(2):
        assert await server.send(POST + b"body")
    assert (server.bodies, server.received) == ([b"body"] * 2, [])


async def test_a_body_can_be_taken_only_once() -> None:
    server = Taker()
    server.protocol.data_received(POST + b"body")
    assert (server.take(), server.take()) == (b"body", b"")
    await asyncio.gather(*server.protocol.tasks)


@pytest.mark.parametrize("end", [b"dy", None])
async def test_an_incomplete_body_is_received_by_messages(end: bytes | None) -> None:
    server = Taker()
    server.protocol.data_received(POST + b"bo")
    await asyncio.sleep(0)
    if end is None:
        server.protocol.connection_lost(None)
    else:
        server.protocol.data_received(end)
    await asyncio.gather(*server.protocol.tasks)
    assert server.bodies == [None]
    assert b"".join(server.received) == (b"bogone" if end is None else b"body")


async def test_a_body_after_100_continue_is_received_by_messages() -> None:
    server = Taker()
    server.protocol.data_received(PUT)
    await asyncio.sleep(0)
    assert server.transport.writes == [b"HTTP/1.1 100 Continue\r\n\r\n"]
    server.protocol.data_received(b"body")
    await asyncio.gather(*server.protocol.tasks)
    assert (server.bodies, server.received) == ([None], [b"body"])


async def test_a_body_for_which_reading_stopped_is_received_by_messages() -> None:
    """Messages resume reading: the client may be sending the next request already."""
    server, body = Taker(), bytes(1 << 17)
    server.protocol.data_received(POST.replace(b"4", b"%d" % len(body)) + body)
    assert server.protocol.flow.read_paused
    await asyncio.gather(*server.protocol.tasks)
    assert (server.bodies, server.received) == ([None], [body])


async def test_no_body_is_taken_from_a_disconnected_client() -> None:
    server = Taker()
    server.protocol.data_received(POST + b"body")
    server.protocol.connection_lost(None)
    await asyncio.gather(*server.protocol.tasks)
    assert (server.bodies, server.received) == ([None], [b"gone"])


async def test_nothing_comes_after_a_body_that_was_taken() -> None:
    server = Taker()
    server.protocol.data_received(POST + b"body")
    assert server.take() == b"body"
    receiving = server.protocol.cycle.receive()
    assert asyncio.isfuture(receiving.send(None))  # it waits
    receiving.close()
    await asyncio.gather(*server.protocol.tasks)


async def test_a_body_that_is_taken_directly_is_limited() -> None:
    async def never() -> Any:
        raise AssertionError

    scope = {
        "method": "POST",
        "raw_path": b"/x",
        "query_string": b"",
        "headers": [(b"transfer-encoding", b"chunked")],
        "extensions": {DIRECT_EXTENSION: {"take": lambda: b"body"}},
    }
    assert await read_body(Request(scope, never), 4) == b"body"
    with pytest.raises(HttpError, match="A body may have at most 3 bytes"):
        await read_body(Request(scope, never), 3)


@pytest.mark.parametrize("direct", [True, False])
async def test_nothing_of_a_request_is_left_to_the_garbage_collector(direct: bool) -> None:
    server = Server(direct=direct)
    gc.disable()
    try:
        await server.send(GET)
        first = ref(server.protocol.cycle)
        await server.send(GET)
        assert first() is None
    finally:
        gc.enable()


UNDOCUMENTED = {
    Http1Protocol: ["_start_asgi_task", "_unsupported_upgrade_warning", "send_400_response"],
    "protocol": [
        *("client", "cycle", "flow", "headers", "parser", "pipeline", "scope", "server_state"),
        *("transport", "url"),
    ],
    "cycle": [
        *("access_log", "body", "default_headers", "disconnected", "flow", "keep_alive"),
        *("message_event", "more_body", "on_response", "response_complete", "response_started"),
        *("transport", "waiting_for_100_continue"),
    ],
    "flow": ["read_paused", "resume_reading", "write_paused"],
}
"""Undocumented names of uvicorn that `app.http.uvicorn_protocol` uses."""


async def test_the_pinned_uvicorn_has_every_undocumented_name() -> None:
    server = Server(direct=False)
    await server.send(GET)
    protocol: Any = server.protocol
    owners = {
        Http1Protocol: HttpToolsProtocol,
        "protocol": protocol,
        "cycle": protocol.cycle,
        "flow": protocol.flow,
    }
    missing = [
        name
        for owner, names in UNDOCUMENTED.items()
        for name in names
        if not hasattr(owners[owner], name)
    ]
    assert missing == []


def test_only_one_module_uses_undocumented_names_of_uvicorn_and_its_version_is_pinned() -> None:
    users = [
        path
        for path in ROOT.glob("app/**/*.py")
        if re.search(r"uvicorn\.protocols|httptools_impl", path.read_text())
    ]
    assert users == [ROOT / "app/http/uvicorn_protocol.py"]
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert f"uvicorn=={uvicorn.__version__}" in dependencies
