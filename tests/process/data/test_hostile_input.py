"""Hostile input over real sockets: a 4xx problem that names the place, and nothing stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest

from mediator.stores.port import SystemConfig
from tests.faults.caching.wire import Answer, Connection, Unanswered, read_answer
from tests.faults.service import Service
from tests.process.service import field_on

TEN_MB = 10 * 2**20
UPDATE = "application/vnd.portolan.update+json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
JSON = "application/json"
NDJSON = "application/x-ndjson"

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


@dataclass(frozen=True)
class Hostile:
    """A request that must be refused, and how.

    Attributes:
        method: Its method.
        target: Its target below the database, as it goes over the wire.
        body: Its body as it goes over the wire.
        media_type: What the body is said to be.
        headers: Further fields.
        status: The answer's status.
        pointer: A place that the answer names.
    """

    method: str
    target: str
    body: bytes | None = None
    media_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 400
    pointer: str | None = None


def put(body: bytes, pointer: str | None = None, **members: Any) -> Hostile:
    return Hostile("PUT", "articles/new", body, pointer=pointer, **members)


def patch(body: bytes, pointer: str | None = None, **members: Any) -> Hostile:
    """Patch the object that is there."""
    return Hostile("PATCH", "articles/there", body, pointer=pointer, **members)


def get(target: str, pointer: str | None = None, **members: Any) -> Hostile:
    return Hostile("GET", target, pointer=pointer, **members)


def at(id_: str, status: int = 400, pointer: str | None = "id") -> Hostile:
    return Hostile("PUT", f"articles/{id_}", b'{"title":"x"}', status=status, pointer=pointer)


HOSTILE: dict[str, Hostile] = {
    # malformed JSON
    "empty": put(b"", ""),
    "cut": put(b'{"title":"x"', ""),
    "two": put(b'{"title":"x"}{}', ""),
    "single quotes": put(b"{'title':'x'}", ""),
    "not UTF-8": put(b'{"title":"\xff\xfe"}', ""),
    "overlong UTF-8": put(b'{"title":"\xc0\xaf"}', ""),
    "raw surrogate": put(b'{"title":"\xed\xa0\x80"}', ""),
    "escaped surrogate": put(b'{"title":"\\ud800"}', ""),
    "raw NUL": put(b'{"title":"\x00"}', ""),
    "NaN": put(b'{"title":"x","score":NaN}', ""),
    "infinity": put(b'{"title":"x","score":Infinity}', ""),
    "byte order mark": put(b'\xff\xfe{\x00"\x00', ""),
    "100k arrays": put(b"[" * 100_000, ""),
    "100k objects": put(b'{"a":' * 100_000 + b"1" + b"}" * 100_000, ""),
    "100k in a field": put(b'{"title":"x","extra":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001),
    "1000 in a field": put(b'{"title":"x","extra":' + b'{"a":' * 1000 + b"1" + b"}" * 1001),
    # shape
    "array": put(b"[1]", ""),
    "null": put(b"null", ""),
    "string": put(b'"x"', ""),
    "unknown field": put(b'{"title":"x","nope":1}', "/nope"),
    "missing field": put(b'{"hits":1}', "/title"),
    "other id": put(b'{"id":"other","title":"x"}', "/id"),
    # types and ranges
    "number for string": put(b'{"title":1}', "/title"),
    "object for string": put(b'{"title":{"$ne":null}}', "/title"),
    "too long": put(b'{"title":"' + b"x" * 301 + b'"}', "/title"),
    "string for integer": put(b'{"title":"x","hits":"1"}', "/hits"),
    "boolean for integer": put(b'{"title":"x","hits":true}', "/hits"),
    "beyond int64": put(b'{"title":"x","hits":9223372036854775808}', "/hits"),
    "below int64": put(b'{"title":"x","hits":-9223372036854775809}', "/hits"),
    "huge integer": put(b'{"title":"x","hits":' + b"9" * 5000 + b"}"),
    "fraction": put(b'{"title":"x","hits":1.5}', "/hits"),
    "beyond double": put(b'{"title":"x","score":1e999}'),
    "decimal as number": put(b'{"title":"x","price":1.5}', "/price"),
    "35 digits": put(b'{"title":"x","price":"' + b"1" * 35 + b'"}', "/price"),
    "decimal NaN": put(b'{"title":"x","price":"NaN"}', "/price"),
    "no such day": put(b'{"title":"x","seen":"2026-02-30T00:00:00Z"}', "/seen"),
    "no time": put(b'{"title":"x","seen":"yesterday"}', "/seen"),
    "not base64": put(b'{"title":"x","data":"?"}', "/data"),
    "set of objects": put(b'{"title":"x","tags":[{"$gt":""}]}', "/tags/0"),
    # operators of MongoDB, SQL, Lua and paths as names of fields
    "$where": put(b'{"title":"x","$where":"sleep(1000)"}', "/$where"),
    "$set": patch(b'{"$set":{"hits":1}}', "/$set", media_type=MERGE),
    "dotted": patch(b'{"extra.a":1}', media_type=MERGE),
    "SQL name": put(b'{"title":"x","hits\\" = 1; DROP TABLE articles; --":1}'),
    "NUL name": put(b'{"title":"x","a\\u0000b":1}'),
    "_id": put(b'{"title":"x","_id":1}', "/_id"),
    "__proto__": put(b'{"title":"x","__proto__":{}}', "/__proto__"),
    # operators
    "no operator": patch(b'{"hits":{"$inc":1}}', "/hits/$inc", media_type=UPDATE),
    "two operators": patch(b'{"hits":{"inc":1,"mul":2}}', "/hits", media_type=UPDATE),
    "text for inc": patch(
        b'{"hits":{"inc":"1); redis.call(\'FLUSHALL\')"}}', "/hits/inc", media_type=UPDATE
    ),
    "inc of text": patch(b'{"title":{"inc":1}}', "/title/inc", media_type=UPDATE),
    "inc beyond": patch(b'{"hits":{"inc":9223372036854775808}}', "/hits/inc", media_type=UPDATE),
    "operator on nothing": patch(b'{"nope":{"inc":1}}', "/nope", media_type=UPDATE),
    "bare operator": patch(b'{"inc":1}', media_type=UPDATE),
    # patches
    "JSON Patch object": patch(b"{}", "", media_type=JSON_PATCH),
    "JSON Patch op": patch(b'[{"op":"eval","path":"/title","value":"x"}]', media_type=JSON_PATCH),
    "JSON Patch path": patch(b'[{"op":"add","path":"title","value":"x"}]', media_type=JSON_PATCH),
    "JSON Patch deep": patch(
        b'[{"op":"add","path":"' + b"/a" * 50_000 + b'","value":1}]', media_type=JSON_PATCH
    ),
    "merge null": patch(b'{"title":null}', "/title", media_type=MERGE),
    # ids
    "dot": at("."),
    "dot dot": at(".."),
    "escaped dot dot": at("%2e%2e"),
    "up": at("../../admin", 404, None),
    "slash": at("a/b", 404, None),
    "escaped slash": at("a%2Fb"),
    "twice escaped is not decoded": get("articles/a%252Fb", status=404),
    "NUL": at("a%00b"),
    "newline": at("a%0D%0Ab"),
    "C1": at("%C2%85"),
    "4 KB": at("a" * 4096),
    "513 bytes": at("%C3%A9" * 257),
    "id not UTF-8": at("%ff%fe"),
    "id overlong": at("%c0%ae%c0%ae"),
    "id surrogate": at("%ed%a0%80"),
    "half an escape": at("a%2"),
    "no escape": at("a%zz"),
    "id in body": Hostile("POST", "articles", b'{"id":"a/b","title":"x"}', pointer="/id"),
    "id of a wrong type": Hostile(
        "POST", "articles", b'{"id":{"$ne":1},"title":"x"}', pointer="/id"
    ),
    # names
    "class injection": get("articles'--", status=404),
    "class traversal": get("..%2f..%2fadmin/x", "class"),
    "class unknown": get("system.users/x", status=404),
    # parameters
    "unknown parameter": get("articles/there?frields=title", "frields"),
    "twice": get("articles?limit=1&limit=2", "limit"),
    "field injection": get("articles/there?fields=title,hits;--", "fields"),
    "field operator": get("articles/there?fields=$where", "fields"),
    "order injection": get("articles?order=hits;DROP%20TABLE%20x", "order"),
    "order by nothing": get("articles?order=-", "order"),
    "condition on nothing": get("articles?$where=1", "$where"),
    "condition of an operator": get("articles?hits.$gt=1", "hits.$gt"),
    "filter injection": get("articles?filter={%22$where%22:%221%22}", "filter/$where"),
    "query injection": Hostile(
        "POST", "articles/query", b'{"filter":{"eq":["hits",{"$gt":0}]}}', pointer="/filter/eq/1"
    ),
    "query code": Hostile(
        "POST", "articles/query", b'{"filter":{"$where":"1"}}', pointer="/filter/$where"
    ),
    "limit zero": get("articles?limit=0", "limit"),
    "limit huge": get("articles?limit=" + "9" * 400, "limit"),
    "limit text": get("articles?limit=1%20OR%201=1", "limit"),
    "cursor": get("articles?after='%20OR%201=1--", "after"),
    "raw blanks": get("articles?after=' OR 1=1--"),
    "cursor binary": get("articles?after=%00%ff", "after"),
    "cursor forged": get("articles?order=hits&after=eyJhIjoxfQ.AAAA", "after"),
    "ids hostile": get("articles?ids=a%252Fb,%2500", "ids"),
    "ids many": get("articles?ids=" + ",".join("a" * 3 for _ in range(2000)), "ids"),
    "query broken": get("articles?limit=%", "limit"),
    "query too long": get("articles?after=" + "a" * 70_000),
    "export after": get("articles/export?after=%00", "after"),
    "import skip": Hostile("POST", "articles/import?skip=-1", b"{}\n", NDJSON, pointer="skip"),
    # headers
    "If-Match": put(b'{"title":"x"}', "If-Match", headers={"if-match": "DROP TABLE"}),
    "If-Match huge": put(
        b'{"title":"x"}', headers={"if-match": ", ".join(['"a"'] * 8000)}, status=412
    ),
    "If-None-Match": get("articles/there", "If-None-Match", headers={"if-none-match": '"'}),
    "key too long": put(
        b'{"title":"x"}', "Idempotency-Key", headers={"idempotency-key": "k" * 256}
    ),
    "key not ASCII": put(
        b'{"title":"x"}', "Idempotency-Key", headers={"idempotency-key": "k\u00e9y"}
    ),
    "key with tab": put(b'{"title":"x"}', "Idempotency-Key", headers={"idempotency-key": "a\tb"}),
    "Accept": get("articles/there", headers={"accept": "text/html;q=x"}, status=406),
    "type": put(b"<a/>", media_type="application/xml", status=415),
    "charset": put(b'{"title":"x"}', media_type="application/json; charset=utf-7", status=415),
    "body on GET": Hostile("GET", "articles/there", b'{"$where":1}'),
    # methods
    "method": Hostile("TRACE", "articles/there", status=405),
    "method unknown": Hostile("PROPFIND", "articles/there", status=405),
    # sizes
    "10 MB": put(b'{"title":"' + b"x" * TEN_MB + b'"}', status=413),
    # batches
    "batch of nothing": Hostile("POST", "batch", b"{}", pointer="/operations"),
    "batch of too many": Hostile(
        "POST",
        "batch",
        b'{"operations":[' + b",".join([b"{}"] * 1001) + b"]}",
        pointer="/operations",
    ),
    "batch member": Hostile("POST", "batch", b'{"operations":[],"eval":1}', pointer="/eval"),
    "many of too many": Hostile("POST", "articles", b"[" + b",".join([b"{}"] * 1001) + b"]"),
}


@pytest.fixture(scope="module")
async def service(
    system_configs: Sequence[SystemConfig], catalogue_url: str
) -> AsyncIterator[Service]:
    """A service beside the mediator of the run, so that systems are examined only once."""
    async with Service.on(system_configs, catalogue_url).running() as running:
        await running.favour()
        placed = await running.put_schema("news", CLASSES)
        assert {placed["notes"], placed["sessions"]} == {"mongo", "redis"}
        async with Connection(running.data) as http:
            made = await http.request("PUT", "/v1/news/articles/there", {"title": "x"})
            assert made.status == 201, made
        yield running


@pytest.fixture
async def http(service: Service) -> AsyncIterator[Connection]:
    """A connection; whatever goes over it, nothing is stored and the service stays healthy."""
    async with Connection(service.data) as connection:
        before = await everything(connection)
        yield connection
        assert await everything(connection) == before
    async with Connection(service.admin) as admin:
        ready = (await admin.request("GET", "/ready")).json()
        assert ready["ready"]
        assert not ready["degraded"]


async def everything(http: Connection) -> list[bytes]:
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
        assert hostile.pointer in [mistake["pointer"] for mistake in problem["errors"]]


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
    made = await http.request("POST", f"/v1/news/{class_name}", body)
    if made.status == 400:
        assert made.problem()["errors"]
        return
    assert made.status == 201, made
    target = f"/v1/news/{class_name}/{made.json()['id']}"
    found = (await http.request("GET", target)).json()
    assert {key: found[key] for key in body} == body
    assert (await http.request("DELETE", target)).status == 204


@pytest.mark.parametrize("class_name", ["articles", "notes", "sessions"])
@pytest.mark.parametrize(
    "id_",
    ["a'; DROP TABLE x;--", "$where", "*", "KEYS[1]", "{a}:b", "...", ".*", "a b%\u202e", "\\"],
)
async def test_hostile_ids_are_only_ids(http: Connection, class_name: str, id_: str) -> None:
    name = {"articles": "title", "notes": "text", "sessions": "user"}[class_name]
    made = await http.request("POST", f"/v1/news/{class_name}", {"id": id_, name: "x"})
    assert made.status == 201, made
    target = made.headers["location"]
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
    *refused, done = answer.json()
    assert done["status"] == 200
    for result in refused:
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
    "too large by its word": f"{HEAD}Content-Length: {TEN_MB}\r\n\r\n{{".encode(),
}


@pytest.mark.parametrize("raw", RAW.values(), ids=RAW.keys())
async def test_broken_requests_are_refused(service: Service, http: Connection, raw: bytes) -> None:
    with closing(Connection(service.data)) as connection:
        try:
            answer = await connection.send(raw)
        except Unanswered:
            return  # closed without a word: that is an answer to what is no HTTP
        assert 400 <= answer.status < 500, answer
        answer.problem()


async def test_ten_megabytes_in_chunks(service: Service, http: Connection) -> None:
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    head = f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode()
    with closing(Connection(service.data)) as connection:
        answer = await connection.send(head + chunk * (TEN_MB // 0x10000) + b"0\r\n\r\n", "PUT")
    assert answer.status == 413
    assert answer.problem()["limit_bytes"] < TEN_MB


async def opened(service: Service) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = service.data.removeprefix("http://").split(":")
    return await asyncio.open_connection(host, int(port))


async def test_a_body_shorter_than_its_word_is_not_stored(
    service: Service, http: Connection
) -> None:
    _, writer = await opened(service)
    writer.write(f"{HEAD}Content-Length: 100\r\n\r\n{GOOD}".encode())
    await writer.drain()
    writer.close()
    await writer.wait_closed()


async def test_slow_clients_keep_nobody_waiting(service: Service, http: Connection) -> None:
    """Requests that never end hold connections, and nothing else."""
    slow = [await opened(service) for _ in range(200)]
    for number, (_, writer) in enumerate(slow):
        whole = f"{HEAD}Content-Length: 13\r\n\r\n{GOOD}".encode()
        writer.write(whole[: 1 + number % (len(whole) - 1)])
    async with asyncio.timeout(30):
        for _ in range(20):
            answer = await http.request("GET", "/v1/news/articles/there")
            assert answer.status == 200
    for _, writer in slow:
        writer.close()


async def test_pipelined_requests_are_answered_in_order(service: Service, http: Connection) -> None:
    reader, writer = await opened(service)
    targets = ["articles/there", "articles/nobody", "articles/%00", "nope/x", "articles/there"]
    requests = [f"GET /v1/news/{target} HTTP/1.1\r\nHost: x\r\n\r\n" for target in targets]
    writer.write("".join(requests).encode())
    async with asyncio.timeout(30):
        answers: list[Answer] = [await read_answer(reader) for _ in targets]
    writer.close()
    assert [answer.status for answer in answers] == [200, 404, 400, 404, 200]
