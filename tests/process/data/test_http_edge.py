"""What comes over a socket before any application sees a request: framing, time, connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from functools import partial
from typing import Any, Final

import orjson
import pytest

from app.http.connections import Connections, PortLimits
from app.http.heads import FIELDS_LIMIT
from app.http.uvicorn_protocol import HEAD_LIMIT, PIPELINED_LIMIT
from app.service.serving import _server
from mediator.base.periodic_tasks import Scheduler
from mediator.stores.port import SystemConfig
from tests.faults.caching.wire import Answer, Unanswered, read_answer
from tests.faults.conditions import eventually
from tests.process.caching.guarded import Guarded, bearer, guarded

GET: Final = b"GET /a HTTP/1.1\r\nHost: x\r\n"
PUT: Final = b"PUT /a HTTP/1.1\r\nHost: x\r\n"
CHUNKED: Final = PUT + b"Transfer-Encoding: chunked\r\n\r\n"
END: Final = b"\r\n"


class Recorder:
    """An application that says what it was asked.

    Attributes:
        begun: Set by the first request that it was given.
        asked: Every request that it was given, with its body if all of that came.
        go_on: Until this is set, requests for ``/held`` are not answered.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, bytes | None]] = []
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.begun.set()
        body = await self._body(receive)
        self.asked.append((scope["method"], scope["path"], body))
        if scope["path"] == "/held":
            await self.go_on.wait()
        names = sorted(name.decode() for name, _ in scope["headers"])
        text = orjson.dumps({"path": scope["path"], "fields": names})
        if scope["path"] == "/large":
            text = b"x" * 2**25
        length = (b"content-length", b"%d" % len(text))
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": text})

    @staticmethod
    async def _body(receive: Any) -> bytes | None:
        body = bytearray()
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
            if not message["more_body"]:
                return bytes(body)
        return None


class Edge:
    """A port with a recorder behind it."""

    def __init__(self, address: tuple[str, int], app: Recorder) -> None:
        self.address = address
        self.app = app

    def connection(self) -> AbstractAsyncContextManager[Client]:
        return connected(self.address)

    async def exchange(self, raw: bytes) -> list[Answer]:
        """Send bytes over a connection of their own; return the answers until its end."""
        async with self.connection() as client:
            client.send(raw)
            return await client.answers()


class Client:
    """A connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer

    def send(self, raw: bytes) -> None:
        self._writer.write(raw)

    async def flood(self, piece: bytes, most: int) -> int:
        """Send a piece again and again until the connection ends; return how often."""
        for sent in range(most):
            try:
                self._writer.write(piece)
                await self._writer.drain()
            except OSError:
                return sent
            if self._writer.is_closing():
                return sent
        return most

    async def answer(self) -> Answer:
        async with asyncio.timeout(60):
            return await read_answer(self.reader)

    async def answers(self) -> list[Answer]:
        """Read answers until the connection ends."""
        found: list[Answer] = []
        with contextlib.suppress(EOFError, OSError):
            while True:
                found.append(await self.answer())
        return found

    async def closed(self) -> bool:
        """Whether the connection ends without another byte."""
        async with asyncio.timeout(60):
            try:
                return not await self.reader.read(1)
            except OSError:
                return True


@asynccontextmanager
async def connected(address: tuple[str, int]) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection(*address)
    with closing(writer):
        yield Client(reader, writer)


@asynccontextmanager
async def serving(app: Any, port: Connections) -> AsyncIterator[tuple[str, int]]:
    """Serve an application as the service does; yields the address."""
    server = _server(app, port)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.create_task(server.serve([listener]))
        try:
            yield listener.getsockname()[:2]
        finally:
            server.should_exit = True
            await task


@asynccontextmanager
async def edge_of(**limits: Any) -> AsyncIterator[Edge]:
    app = Recorder()
    port = Connections(PortLimits(**limits))
    watch = Scheduler([port.periodic_task()])
    watch.start()
    async with serving(app, port) as address:
        try:
            yield Edge(address, app)
        finally:
            app.go_on.set()
            await watch.stop()


@pytest.fixture
async def edge() -> AsyncIterator[Edge]:
    async with edge_of() as found:
        yield found


REFUSED: dict[str, bytes] = {
    "no host": b"GET /a HTTP/1.1\r\n\r\n",
    "two hosts": GET + b"Host: y\r\n\r\n",
    "two hosts in HTTP/1.0": b"GET /a HTTP/1.0\r\nHost: x\r\nHost: y\r\n\r\n",
    "no name of a host": b"GET /a HTTP/1.1\r\nHost: x/y@z\r\n\r\n",
    "HTTP/2.0": b"GET /a HTTP/2.0\r\nHost: x\r\n\r\n",
    "HTTP/1.2": b"GET /a HTTP/1.2\r\nHost: x\r\n\r\n",
    "HTTP/0.9": b"GET /a\r\n\r\n",
    "HTTP/0.9 by name": b"GET /a HTTP/0.9\r\nHost: x\r\n\r\n",
    "preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "fragment": b"GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n",
    "another coding": PUT + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "another coding before": (
        PUT + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "another coding alone": PUT + b"Transfer-Encoding: gzip\r\n\r\n0\r\n\r\n",
    "no coding": PUT + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0") + b"0\r\n\r\n",
    "length, then chunks": (
        PUT + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "chunks, then length": CHUNKED[:-2] + b"Content-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": PUT + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\nx",
    "lengths in one": PUT + b"Content-Length: 1, 1\r\n\r\nx",
    "length with a sign": PUT + b"Content-Length: +1\r\n\r\nx",
    "bare LF after the request line": b"GET /a HTTP/1.1\nHost: x\r\n\r\n",
    "bare LF after a field": b"GET /a HTTP/1.1\r\nHost: x\n\r\n",
    "bare CR in a field": GET + b"A: b\rc\r\n\r\n",
    "folded field": GET + b"A: b\r\n c\r\n\r\n",
    "space before a colon": GET + b"A : b\r\n\r\n",
    "space before the first field": b"GET /a HTTP/1.1\r\n Host: x\r\n\r\n",
    "space after the version": b"GET /a HTTP/1.1 \r\nHost: x\r\n\r\n",
    "method in small letters": b"get /a HTTP/1.1\r\nHost: x\r\n\r\n",
    "switch with a length": (
        PUT + b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 5\r\n\r\nhello"
    ),
    "switch with chunks": CHUNKED[:-2] + b"Connection: Upgrade\r\nUpgrade: x\r\n\r\n0\r\n\r\n",
    "switch, then keep alive": (
        PUT + b"Connection: Upgrade\r\nConnection: keep-alive\r\nUpgrade: x\r\n"
        b"Content-Length: 5\r\n\r\nhello"
    ),
    "tunnel with a length": b"CONNECT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
}


@pytest.mark.parametrize("raw", REFUSED.values(), ids=REFUSED.keys())
async def test_what_has_two_readings_is_refused(edge: Edge, raw: bytes) -> None:
    (answer,) = await edge.exchange(raw + GET + END)
    assert answer.status == 400, answer
    problem = answer.problem()
    assert problem["instance"] == answer.headers["x-request-id"]
    assert problem["detail"].endswith(".")
    assert answer.headers["connection"] == "close"
    assert edge.app.asked == [], "neither it nor what follows it is a request"


TAKEN: dict[str, bytes] = {
    "an empty line before": b"\r\n" + GET + END,
    "a host with a port": b"GET /a HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
    "an empty host": b"GET /a HTTP/1.1\r\nHost:\r\n\r\n",
    "an absolute target": b"GET http://x/a HTTP/1.1\r\nHost: x\r\n\r\n",
    "HTTP/1.0 without a host": b"GET /a HTTP/1.0\r\n\r\n",
    "chunks in capitals": CHUNKED.replace(b"chunked", b"CHUNKED") + b"0\r\n\r\n",
    "an extension of a chunk": CHUNKED + b'1;a="b"\r\nx\r\n0\r\n\r\n',
}


@pytest.mark.parametrize("raw", TAKEN.values(), ids=TAKEN.keys())
async def test_what_is_well_formed_is_taken(edge: Edge, raw: bytes) -> None:
    async with edge.connection() as client:
        client.send(raw)
        assert (await client.answer()).status == 200
    assert [path for _, path, _ in edge.app.asked] == ["/a"]


@pytest.mark.parametrize("upgrade", [b"websocket", b"h2c"])
async def test_nothing_after_a_switch_of_protocols_is_a_request(edge: Edge, upgrade: bytes) -> None:
    switch = GET + b"Connection: Upgrade\r\nUpgrade: " + upgrade + b"\r\n\r\n"
    (answer,) = await edge.exchange(switch + GET.replace(b"/a", b"/smuggled") + END)
    assert answer.status == 200
    assert answer.headers["connection"] == "close"
    assert edge.app.asked == [("GET", "/a", b"")]


async def test_a_switch_sent_in_two_pieces_is_one_request(edge: Edge) -> None:
    async with edge.connection() as client:
        client.send(b"GET /held HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
        await eventually(partial(_asked, edge, 1))
        client.send(GET + END)
        edge.app.go_on.set()
        assert (await client.answer()).status == 200
        assert await client.closed()
    assert edge.app.asked == [("GET", "/held", b"")]


async def _asked(edge: Edge, times: int) -> bool:
    return len(edge.app.asked) >= times


async def test_trailers_are_no_fields(edge: Edge) -> None:
    trailer = b"1\r\nx\r\n0\r\nAuthorization: Bearer k\r\nX-Request-Id: t\r\n\r\n"
    async with edge.connection() as client:
        client.send(CHUNKED + trailer + GET + END)
        first, second = [(await client.answer()).json() for _ in range(2)]
    assert first["fields"] == ["host", "transfer-encoding"]
    assert second["fields"] == ["host"]
    assert edge.app.asked[0] == ("PUT", "/a", b"x")


FLOODS: dict[str, tuple[bytes, bytes]] = {
    "trailers": (CHUNKED + b"0\r\n", b"A: " + b"x" * 1000 + b"\r\n"),
    "one trailer": (CHUNKED + b"0\r\nA: ", b"x" * 1000),
    "an extension of a chunk": (CHUNKED + b"1;a=", b"x" * 1000),
    "fields": (GET, b"A: " + b"x" * 1000 + b"\r\n"),
    "empty lines": (b"\r\n", b"\r\n" * 500),
}


@pytest.mark.parametrize(("begin", "more"), FLOODS.values(), ids=FLOODS.keys())
async def test_what_is_no_body_has_an_end(edge: Edge, begin: bytes, more: bytes) -> None:
    async with edge.connection() as client:
        client.send(begin)
        most = 64 * 2**20 // len(more)
        assert await client.flood(more, most) < most
    assert [body for _, _, body in edge.app.asked] in ([], [None]), "no such request is complete"


async def test_endless_trailers_are_answered(edge: Edge) -> None:
    async with edge.connection() as client:
        client.send(CHUNKED + b"0\r\nA: ")
        await edge.app.begun.wait()
        client.send(b"x" * (HEAD_LIMIT + 1))
        answer = await client.answer()
    assert answer.status == 431
    assert answer.problem()["type"] == "/problems/head-too-large"
    await eventually(partial(_asked, edge, 1))
    assert edge.app.asked == [("PUT", "/a", None)]


@pytest.mark.parametrize(("more", "status"), [(FIELDS_LIMIT - 1, 200), (FIELDS_LIMIT, 431)])
async def test_a_request_has_so_many_fields(edge: Edge, more: int, status: int) -> None:
    async with edge.connection() as client:
        client.send(GET + b"A: b\r\n" * more + END)
        assert (await client.answer()).status == status


async def test_so_many_requests_wait_in_a_connection(edge: Edge) -> None:
    """Those that wait are answered; what is left is another connection's (RFC 9112, 9.3.2)."""
    edge.app.go_on.set()
    answers = await edge.exchange((GET + END) * (PIPELINED_LIMIT + 50))
    assert [answer.status for answer in answers] == [200] * (PIPELINED_LIMIT + 1)
    assert answers[-1].headers["connection"] == "close"


async def test_what_came_before_is_answered_first(edge: Edge) -> None:
    """A refusal is never taken for the answer to another request."""
    held = b"GET /held HTTP/1.1\r\nHost: x\r\n\r\n"
    async with edge.connection() as client:
        client.send(held + GET + END + CHUNKED + b"no size\r\n")
        await eventually(partial(_asked, edge, 1))
        edge.app.go_on.set()
        answers = await client.answers()
    assert [answer.status for answer in answers] == [200, 200, 400]
    assert [path for _, path, _ in edge.app.asked] == ["/held", "/a"]


async def test_a_broken_body_is_refused_once(edge: Edge) -> None:
    (answer,) = await edge.exchange(CHUNKED + b"no size\r\n")
    assert answer.status == 400
    assert edge.app.asked in ([], [("PUT", "/a", None)])


@pytest.mark.parametrize("begin", [b"", b"\r\n", b"GET", GET, GET + b"A: "])
async def test_a_head_has_its_time(begin: bytes) -> None:
    async with edge_of(head=1) as edge, edge.connection() as client:
        client.send(begin)
        if begin.strip():
            answer = await client.answer()
            assert answer.status == 408
            assert answer.problem()["type"] == "/problems/request-timeout"
            assert answer.headers["connection"] == "close"
        assert await client.closed()
        assert edge.app.asked == []


@pytest.mark.parametrize(
    "begin", [PUT + b"Content-Length: 9\r\n\r\nx", CHUNKED, CHUNKED + b"1\r\nx\r\n0\r\nA:"]
)
async def test_a_body_has_its_time(begin: bytes) -> None:
    async with edge_of(body=1) as edge, edge.connection() as client:
        client.send(begin)
        assert (await client.answer()).status == 408
        assert await client.closed()
        await eventually(partial(_asked, edge, 1))
        assert edge.app.asked == [("PUT", "/a", None)], "who waits for it is text that it is gone"


async def test_drops_are_no_progress() -> None:
    """A byte now and then keeps no body alive."""
    async with edge_of(body=1) as edge, edge.connection() as client:
        client.send(PUT + b"Content-Length: 1000000\r\n\r\n")
        dripping = asyncio.create_task(_drip(client))
        assert (await client.answer()).status == 408
        dripping.cancel()


async def _drip(client: Client, what: bytes = b"x") -> None:
    while True:
        client.send(what)
        await asyncio.sleep(0.2)


async def test_an_idle_connection_is_closed() -> None:
    """Also one that goes on sending lines that begin no request."""
    async with edge_of(idle=1) as edge, edge.connection() as client, edge.connection() as other:
        for each in (client, other):
            each.send(GET + END)
            assert (await each.answer()).status == 200
        dripping = asyncio.create_task(_drip(other, b"\r\n"))
        assert await client.closed()
        assert await other.closed()
        dripping.cancel()


async def test_who_waits_for_us_is_not_given_up() -> None:
    async with edge_of(head=1) as edge, edge.connection() as client:
        client.send(b"GET /held HTTP/1.1\r\nHost: x\r\n\r\n")
        await edge.app.begun.wait()
        async with edge.connection() as other:
            assert await other.closed(), "others are looked at meanwhile"
        edge.app.go_on.set()
        assert (await client.answer()).json()["path"] == "/held"


async def test_a_response_that_nobody_takes_is_given_up() -> None:
    async with edge_of(response=1, connections=1) as edge, edge.connection() as client:
        client.send(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        await edge.app.begun.wait()
        await eventually(partial(_room, edge))
        with pytest.raises((EOFError, OSError)):
            await client.answer()


@pytest.mark.parametrize("limits", [{"connections": 2}, {"per_peer": 2}])
async def test_there_are_so_many_connections(limits: dict[str, int]) -> None:
    async with edge_of(**limits) as edge, edge.connection() as one:
        async with edge.connection() as other:
            for client in (one, other):
                client.send(GET + END)
                assert (await client.answer()).status == 200
            async with edge.connection() as third:
                answer = await third.answer()
                assert answer.status == 503
                assert answer.problem()["type"] == "/problems/too-many-connections"
                assert answer.headers["retry-after"] == "1"
            one.send(GET + END)
            assert (await one.answer()).status == 200
        await eventually(partial(_room, edge))


async def _room(edge: Edge) -> bool:
    """Whether a connection is taken again."""
    async with edge.connection() as client:
        client.send(GET + END)
        with contextlib.suppress(Unanswered, EOFError, OSError):
            return (await client.answer()).status == 200
        return False


@pytest.fixture(scope="module")
async def installation(
    redis_config: SystemConfig,
    system_configs: Sequence[SystemConfig],
    catalogue_url: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Guarded]:
    jobs = tmp_path_factory.mktemp("jobs")
    async with guarded(system_configs[:2], catalogue_url, redis_config.url, jobs) as running:
        yield running


async def test_a_key_in_a_trailer_is_nobodys(installation: Guarded) -> None:
    headers = await installation.headers("operator", "write")
    path = f"/v1/{installation.database}/secrets/smuggled"
    head = f"PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n".encode()
    trailer = f"0\r\nAuthorization: {headers['authorization']}\r\n\r\n".encode()
    port = Connections(PortLimits())
    async with serving(installation.container.data, port) as address, connected(address) as client:
        client.send(head + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n" + trailer)
        assert (await client.answer()).status == 401
    assert (await installation.data.get(path, headers=headers)).status_code == 404


async def test_a_hanging_body_gives_its_place_back(installation: Guarded) -> None:
    """A tenant with one request under way, which never ends, is not shut out by it."""
    operator = await installation.headers("operator", "admin")
    tenant = f"/admin/v1/tenants/{installation.owner}"
    limited = await installation.admin.put(
        tenant, json={"limits": {"in_flight": 1}}, headers=operator
    )
    assert limited.status_code in {200, 201}, limited.text
    own = bearer(await installation.key("write"))
    path = f"/v1/{installation.database}/secrets/there"
    head = f"PUT {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {own['authorization']}\r\n"
    length = "Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n"
    port = Connections(PortLimits(body=1))
    async with serving(installation.container.data, port) as address, connected(address) as client:
        client.send(f"{head}{length}".encode())
        assert (await client.answer()).status == 100, "it is under way"
        assert await _status(installation, path, own) == 429
        for _ in range(2):
            port.sweep()
        assert (await client.answer()).status == 408
        assert await _status(installation, path, own) == 200


async def _status(installation: Guarded, path: str, headers: Mapping[str, str]) -> int:
    return (await installation.data.get(path, headers=headers)).status_code
