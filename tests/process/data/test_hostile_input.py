"""Hostile input over real sockets: a 4xx problem that names the location, and nothing stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from mediator.stores.port import SystemConfig
from tests.faults.caching.http_client import Answer, Connection, Unanswered, read_answer
from tests.faults.conditions import eventually
from tests.faults.service import Service
from tests.process.data.hostile_requests import HOSTILE, NDJSON, TEN_MB, Hostile
from tests.process.service import field_on

CLASSES: dict[str, Any] = {
    "articles": {
        "fields": {
            "title": field_on("postgres", required=True, max_length=300),
            "hits": field_on("redis", "integer", default=0, index=True, group="hits"),
            "score": field_on("postgres", "float"),
            "price": field_on("postgres", "decimal"),
            "seen": field_on("postgres", "timestamp"),
            "data": field_on("postgres", "binary"),
            "extra": field_on("postgres", "document"),
            "tags": field_on("postgres", "set", items="string"),
        }
    },
    "notes": {"fields": {"text": field_on("mongo"), "extra": field_on("mongo", "document")}},
    "sessions": {"fields": {"user": field_on("redis"), "extra": field_on("redis", "document")}},
}


@pytest.fixture(scope="module")
async def service(
    system_configs: Sequence[SystemConfig], catalogue_url: str
) -> AsyncIterator[Service]:
    """A service on the mediator of the test run, so that systems are examined only once."""
    async with Service.on(system_configs, catalogue_url).running() as running:
        await running.favour()
        systems = await running.put_schema("news", CLASSES)
        assert {systems["notes"], systems["sessions"]} == {"mongo", "redis"}
        async with Connection(running.data) as http:
            created = await http.request("PUT", "/v1/news/articles/there", {"title": "x"})
            assert created.status == 201, created
        yield running


@pytest.fixture
async def http(service: Service) -> AsyncIterator[Connection]:
    """A connection; its requests must store nothing and leave the service healthy."""
    async with Connection(service.data) as connection:
        before = await export_all(connection)
        yield connection
        assert await export_all(connection) == before
    async with Connection(service.admin) as admin:
        await eventually(partial(is_healthy, admin))


async def is_healthy(admin: Connection) -> bool:
    """Return whether the service is ready with all systems; a busy one can answer late once."""
    ready = (await admin.request("GET", "/ready")).json()
    return bool(ready["ready"] and not ready["degraded"])


async def export_all(http: Connection) -> list[bytes]:
    """Export every class."""
    exports = [await http.request("GET", f"/v1/news/{name}/export") for name in CLASSES]
    assert {export.status for export in exports} == {200}
    return [export.body for export in exports]


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE.keys())
async def test_hostile_requests_are_refused(http: Connection, hostile: Hostile) -> None:
    headers = dict(hostile.headers)
    if hostile.body is not None:
        headers["content-type"] = hostile.media_type
    target = f"/v1/news/{hostile.target}"
    answer = await http.request(hostile.method, target, hostile.body, headers)
    assert answer.status == hostile.status, answer
    problem = answer.problem()
    if hostile.pointer is not None:
        assert hostile.pointer in [error["pointer"] for error in problem["errors"]]


VALUES = [
    "'; DROP TABLE articles; --",
    '"; DROP TABLE articles; --',
    "$where: sleep(10000)",
    '{"$gt": ""}',
    "redis.call('FLUSHALL')",
    "]]; os.exit() --[[",
    ".*(a+)+$",
    "\\x00\\u0000",
    "\r\nFLUSHALL\r\n",
    "%s%d{0}{}${jndi:ldap://x}",
    "\u202e\ufeff\U0001f600\u0301",
    "\u0000",
    "a" * 300,
]


@pytest.mark.parametrize("class_name", ["articles", "notes", "sessions"])
@pytest.mark.parametrize("value", VALUES)
async def test_hostile_values_are_only_values(
    http: Connection, class_name: str, value: str
) -> None:
    name = {"articles": "title", "notes": "text", "sessions": "user"}[class_name]
    body = {name: value, "extra": {value: {"$set": value, "a.b": [value]}}}
    created = await http.request("POST", f"/v1/news/{class_name}", body)
    if created.status == 400:
        assert created.problem()["errors"]
        return
    assert created.status == 201, created
    target = f"/v1/news/{class_name}/{created.json()['id']}"
    stored = (await http.request("GET", target)).json()
    assert {key: stored[key] for key in body} == body
    assert (await http.request("DELETE", target)).status == 204


@pytest.mark.parametrize("class_name", ["articles", "notes", "sessions"])
@pytest.mark.parametrize(
    "id_",
    ["a'; DROP TABLE x;--", "$where", "*", "KEYS[1]", "{a}:b", "...", ".*", "a b%\u202e", "\\"],
)
async def test_hostile_ids_are_only_ids(http: Connection, class_name: str, id_: str) -> None:
    name = {"articles": "title", "notes": "text", "sessions": "user"}[class_name]
    created = await http.request("POST", f"/v1/news/{class_name}", {"id": id_, name: "x"})
    assert created.status == 201, created
    target = created.headers["location"]
    assert (await http.request("GET", target)).json()["id"] == id_
    assert (await http.request("DELETE", target)).status == 204
    assert (await http.request("GET", target)).status == 404


async def test_a_batch_refuses_its_bad_operations_only(http: Connection) -> None:
    bad: list[Any] = [
        {"op": "eval", "class": "articles", "id": "new"},
        {"op": "put", "class": "articles", "id": "..", "body": {"title": "x"}},
        {"op": "put", "class": "articles", "id": "new", "body": {"title": {"$gt": ""}}},
        {"op": "put", "class": "../admin", "id": "new", "body": {}},
        {"op": "update", "class": "articles", "id": "there", "body": {"hits": {"$inc": 1}}},
        {"op": "put", "class": "articles", "id": "new", "body": {"title": "x"}, "if_match": 1},
        {"op": "patch", "class": "articles", "id": "there", "body": {"nope": 1}},
        "delete",
        None,
        [],
    ]
    good = {"op": "get", "class": "articles", "id": "there"}
    answer = await http.request("POST", "/v1/news/batch", {"operations": [*bad, good]})
    *refusals, read = answer.json()
    assert read["status"] == 200
    for result in refusals:
        assert 400 <= result["status"] < 500
        assert result["problem"]["status"] == result["status"]


async def test_an_import_refuses_its_bad_lines_only(http: Connection) -> None:
    lines = [b'{"id":"..","title":"x"}', b'{"id":"new"', b"[" * 100_000, b'{"id":"new","$set":1}']
    body = b"\n".join(lines) + b"\n"
    headers = {"content-type": NDJSON}
    answer = await http.request("POST", "/v1/news/articles/import", body, headers)
    summary = answer.json()
    assert answer.status == 200
    assert (summary["imported"], summary["failed"]) == (0, len(lines))
    assert {problem["status"] for problem in summary["problems"]} == {400}


HEAD = "PUT /v1/news/articles/new HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
GOOD = '{"title":"x"}'
RAW: dict[str, bytes] = {
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "no version": b"GET /\r\n\r\n",
    "absolute nonsense": b"GET http://[::1 HTTP/1.1\r\nHost: x\r\n\r\n",
    "huge head": b"GET / HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * 200_000 + b"\r\n\r\n",
    "NUL in head": b"GET /v1/news/articles/there HTTP/1.1\r\nHost: x\r\nX-A: a\x00b\r\n\r\n",
    "two lengths": f"{HEAD}Content-Length: 5\r\nContent-Length: 13\r\n\r\n{GOOD}".encode(),
    "length and chunks": (
        f"{HEAD}Content-Length: 13\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".encode()
    ),
    "negative length": f"{HEAD}Content-Length: -1\r\n\r\n{GOOD}".encode(),
    "length in words": f"{HEAD}Content-Length: ten\r\n\r\n{GOOD}".encode(),
    "bad chunk": f"{HEAD}Transfer-Encoding: chunked\r\n\r\nzz\r\n{GOOD}\r\n0\r\n\r\n".encode(),
    "key with newline": f"{HEAD}Idempotency-Key: a\r\n b\r\nContent-Length: 2\r\n\r\n{{}}".encode(),
    "bare newline": f"{HEAD}Idempotency-Key: a\nX: b\r\nContent-Length: 2\r\n\r\n{{}}".encode(),
    "raw bytes in path": b"PUT /v1/news/articles/\xc0\xae\xff HTTP/1.1\r\nHost: x\r\n\r\n",
    "upgrade": (
        b"GET /v1/news/articles/none HTTP/1.1\r\nHost: x\r\n"
        b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    ),
    "tunnel": b"CONNECT localhost:1 HTTP/1.1\r\nHost: x\r\n\r\n",
    "NUL in path": b"PUT /v1/news/articles/a\x00b HTTP/1.1\r\nHost: x\r\n\r\n",
    "too large by its length": f"{HEAD}Content-Length: {TEN_MB}\r\n\r\n{{".encode(),
}


@pytest.mark.parametrize("raw", RAW.values(), ids=RAW.keys())
async def test_broken_requests_are_refused(service: Service, http: Connection, raw: bytes) -> None:
    with closing(Connection(service.data)) as connection:
        try:
            answer = await connection.send(raw)
        except Unanswered:
            return  # closed without a response, which is correct for bytes that are not HTTP
        assert 400 <= answer.status < 500, answer
        answer.problem()


async def test_ten_megabytes_in_chunks(service: Service, http: Connection) -> None:
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    head = f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode()
    with closing(Connection(service.data)) as connection:
        answer = await connection.send(head + chunk * (TEN_MB // 0x10000) + b"0\r\n\r\n", "PUT")
    assert answer.status == 413
    assert answer.problem()["limit_bytes"] < TEN_MB


async def open_connection(service: Service) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = service.data.removeprefix("http://").split(":")
    return await asyncio.open_connection(host, int(port))


async def test_a_body_shorter_than_its_content_length_is_not_stored(
    service: Service, http: Connection
) -> None:
    _, writer = await open_connection(service)
    writer.write(f"{HEAD}Content-Length: 100\r\n\r\n{GOOD}".encode())
    await writer.drain()
    writer.close()
    await writer.wait_closed()


async def test_slow_clients_do_not_delay_others(service: Service, http: Connection) -> None:
    """Unfinished requests hold connections, and nothing else."""
    slow = [await open_connection(service) for _ in range(200)]
    for number, (_, writer) in enumerate(slow):
        request = f"{HEAD}Content-Length: 13\r\n\r\n{GOOD}".encode()
        writer.write(request[: 1 + number % (len(request) - 1)])
    async with asyncio.timeout(30):
        for _ in range(20):
            answer = await http.request("GET", "/v1/news/articles/there")
            assert answer.status == 200
    for _, writer in slow:
        writer.close()


async def test_pipelined_requests_are_answered_in_order(service: Service, http: Connection) -> None:
    reader, writer = await open_connection(service)
    targets = ["articles/there", "articles/nobody", "articles/%00", "nope/x", "articles/there"]
    requests = [f"GET /v1/news/{target} HTTP/1.1\r\nHost: x\r\n\r\n" for target in targets]
    writer.write("".join(requests).encode())
    async with asyncio.timeout(30):
        answers: list[Answer] = [await read_answer(reader) for _ in targets]
    writer.close()
    assert [answer.status for answer in answers] == [200, 404, 400, 404, 200]
