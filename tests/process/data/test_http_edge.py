"""Framing, which a port checks before any application sees a request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import pytest

from app.http.heads import FIELDS_LIMIT
from app.http.uvicorn_protocol import HEAD_LIMIT, PIPELINED_LIMIT
from tests.faults.conditions import eventually
from tests.process.data.http_edge import (
    CHUNKED,
    END,
    GET,
    PUT,
    Edge,
    edge_of,
    has_requests,
)


@pytest.fixture
async def edge() -> AsyncIterator[Edge]:
    async with edge_of() as opened:
        yield opened


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
async def test_ambiguous_framing_is_refused(edge: Edge, raw: bytes) -> None:
    (answer,) = await edge.exchange(raw + GET + END)
    assert answer.status == 400, answer
    problem = answer.problem()
    assert problem["instance"] == answer.headers["x-request-id"]
    assert problem["detail"].endswith(".")
    assert answer.headers["connection"] == "close"
    assert edge.app.requests == [], "neither it nor the following bytes are a request"


ACCEPTED: dict[str, bytes] = {
    "an empty line before": b"\r\n" + GET + END,
    "a host with a port": b"GET /a HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
    "an empty host": b"GET /a HTTP/1.1\r\nHost:\r\n\r\n",
    "an absolute target": b"GET http://x/a HTTP/1.1\r\nHost: x\r\n\r\n",
    "HTTP/1.0 without a host": b"GET /a HTTP/1.0\r\n\r\n",
    "chunks in capitals": CHUNKED.replace(b"chunked", b"CHUNKED") + b"0\r\n\r\n",
    "an extension of a chunk": CHUNKED + b'1;a="b"\r\nx\r\n0\r\n\r\n',
}


@pytest.mark.parametrize("raw", ACCEPTED.values(), ids=ACCEPTED.keys())
async def test_well_formed_requests_are_accepted(edge: Edge, raw: bytes) -> None:
    async with edge.connection() as client:
        client.send(raw)
        assert (await client.answer()).status == 200
    assert [path for _, path, _ in edge.app.requests] == ["/a"]


@pytest.mark.parametrize("upgrade", [b"websocket", b"h2c"])
async def test_nothing_after_a_switch_of_protocols_is_a_request(edge: Edge, upgrade: bytes) -> None:
    switch = GET + b"Connection: Upgrade\r\nUpgrade: " + upgrade + b"\r\n\r\n"
    (answer,) = await edge.exchange(switch + GET.replace(b"/a", b"/smuggled") + END)
    assert answer.status == 200
    assert answer.headers["connection"] == "close"
    assert edge.app.requests == [("GET", "/a", b"")]


async def test_a_switch_sent_in_two_pieces_is_one_request(edge: Edge) -> None:
    async with edge.connection() as client:
        client.send(b"GET /held HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
        await eventually(partial(has_requests, edge, 1))
        client.send(GET + END)
        edge.app.go_on.set()
        assert (await client.answer()).status == 200
        assert await client.closed()
    assert edge.app.requests == [("GET", "/held", b"")]


async def test_trailers_are_not_fields(edge: Edge) -> None:
    trailer = b"1\r\nx\r\n0\r\nAuthorization: Bearer k\r\nX-Request-Id: t\r\n\r\n"
    async with edge.connection() as client:
        client.send(CHUNKED + trailer + GET + END)
        first, second = [(await client.answer()).json() for _ in range(2)]
    assert first["fields"] == ["host", "transfer-encoding"]
    assert second["fields"] == ["host"]
    assert edge.app.requests[0] == ("PUT", "/a", b"x")


FLOODS: dict[str, tuple[bytes, bytes]] = {
    "trailers": (CHUNKED + b"0\r\n", b"A: " + b"x" * 1000 + b"\r\n"),
    "one trailer": (CHUNKED + b"0\r\nA: ", b"x" * 1000),
    "an extension of a chunk": (CHUNKED + b"1;a=", b"x" * 1000),
    "fields": (GET, b"A: " + b"x" * 1000 + b"\r\n"),
    "empty lines": (b"\r\n", b"\r\n" * 500),
}


@pytest.mark.parametrize(("start", "chunk"), FLOODS.values(), ids=FLOODS.keys())
async def test_endless_malformed_bodies_are_cut_off(edge: Edge, start: bytes, chunk: bytes) -> None:
    async with edge.connection() as client:
        client.send(start)
        max_writes = 64 * 2**20 // len(chunk)
        assert await client.flood(chunk, max_writes) < max_writes
    assert [body for _, _, body in edge.app.requests] in ([], [None]), "no such request is complete"


async def test_endless_trailers_are_answered(edge: Edge) -> None:
    async with edge.connection() as client:
        client.send(CHUNKED + b"0\r\nA: ")
        await edge.app.received.wait()
        client.send(b"x" * (HEAD_LIMIT + 1))
        answer = await client.answer()
    assert answer.status == 431
    assert answer.problem()["type"] == "/problems/head-too-large"
    await eventually(partial(has_requests, edge, 1))
    assert edge.app.requests == [("PUT", "/a", None)]


@pytest.mark.parametrize(("fields", "status"), [(FIELDS_LIMIT - 1, 200), (FIELDS_LIMIT, 431)])
async def test_the_number_of_fields_is_limited(edge: Edge, fields: int, status: int) -> None:
    async with edge.connection() as client:
        client.send(GET + b"A: b\r\n" * fields + END)
        assert (await client.answer()).status == status


async def test_the_number_of_waiting_requests_is_limited(edge: Edge) -> None:
    """Waiting requests are answered; the rest need another connection (RFC 9112, 9.3.2)."""
    edge.app.go_on.set()
    answers = await edge.exchange((GET + END) * (PIPELINED_LIMIT + 50))
    assert [answer.status for answer in answers] == [200] * (PIPELINED_LIMIT + 1)
    assert answers[-1].headers["connection"] == "close"


async def test_earlier_pipelined_requests_are_answered_before_a_refusal(edge: Edge) -> None:
    """A refusal must not look like the answer to another request."""
    held = b"GET /held HTTP/1.1\r\nHost: x\r\n\r\n"
    async with edge.connection() as client:
        client.send(held + GET + END + CHUNKED + b"no size\r\n")
        await eventually(partial(has_requests, edge, 1))
        edge.app.go_on.set()
        answers = await client.answers()
    assert [answer.status for answer in answers] == [200, 200, 400]
    assert [path for _, path, _ in edge.app.requests] == ["/held", "/a"]


async def test_a_broken_body_is_refused_once(edge: Edge) -> None:
    (answer,) = await edge.exchange(CHUNKED + b"no size\r\n")
    assert answer.status == 400
    assert edge.app.requests in ([], [("PUT", "/a", None)])
