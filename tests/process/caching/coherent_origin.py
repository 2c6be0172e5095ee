"""A small origin with the HTTP contract of the sketch, and a cache to put before it.

Tests set its time and pause its requests: `hold` stops a request at a stage until it is released.
"""

from __future__ import annotations

import asyncio
import json
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import parse_qsl, unquote

from sketch.filter.shape import FilterShape
from sketch.memory.server import MemorySketch
from sketch.protocol.port import CacheGrant, FilterSnapshot, Partition, SketchLimits
from tests.process.caching.serving import Endpoint, Message, Reply, problem, send_reply

GROUPS: dict[str, dict[str, list[str]]] = {
    "articles": {"main": ["text", "title"], "hits": ["hits"]},
    "notes": {"main": ["text"]},
}
EPOCH_US = 1_800_000_000_000_000
SHAPE = FilterShape(bits=8_192, hashes=4, seed=7)

Stage = Literal["arrived", "dated", "read"]


class VirtualTime:
    """Time that passes when a test advances it."""

    def __init__(self) -> None:
        self._now = 100.0
        self.sleepers: list[tuple[float, asyncio.Future[None]]] = []

    @property
    def now(self) -> float:
        """Seconds."""
        return self._now

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Wait until the time has advanced by `seconds`."""
        woken = asyncio.get_running_loop().create_future()
        self.sleepers.append((self.now + seconds, woken))
        await woken

    def advance(self, seconds: float) -> None:
        """Advance the time."""
        self._now += seconds
        for at, woken in self.sleepers:
            if at <= self.now and not woken.done():
                woken.set_result(None)
        self.sleepers = [sleeper for sleeper in self.sleepers if not sleeper[1].done()]


@dataclass
class Exchange:
    """A request that the origin received."""

    method: str
    path: str
    headers: dict[str, str]
    status: int = 0

    @property
    def forced(self) -> bool:
        return self.headers.get("cache-control") == "no-cache"


@dataclass
class Pause:
    """Stops requests at a stage."""

    method: str
    end: str
    stage: Stage
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    once: bool = True

    def open(self) -> None:
        self.opened.set()


def encoded(
    snapshot: FilterSnapshot, groups: Mapping[str, Any], valid_for_s: float = 10.0, flags: int = 0
) -> bytes:
    """Encode a filter as docs/sketch-wire.md specifies."""
    text = json.dumps(groups).encode()
    shape = snapshot.shape
    document = (
        b"PtSk"
        + struct.pack(">BBBB", 1, 1, shape.hashes, flags | snapshot.revalidate_all)
        + struct.pack(">IIQI", shape.seed, shape.bits, snapshot.time_us, int(valid_for_s * 1000))
        + bytes.fromhex(snapshot.generation)
        + struct.pack(">QI", snapshot.revision, len(text))
        + text
        + snapshot.bits
    )
    return document + struct.pack(">I", zlib.crc32(document))


class Origin:
    """One database with a sketch in memory; as an ASGI application.

    Attributes:
        ttl_s: TTL of its answers.
        filter_status: Status of its responses to requests for the filter.
        batch_status: Status of its responses to batches.
        batch_items: How many objects of a batch it returns; None: all.
        batch_answer: Body that it returns in place of the objects; None: the objects.
        is_partial: Whether it reports the objects of a batch as partial.
        damage: Applied to each filter before it is sent.
        extra: Header fields of every response to a read or for the filter.
        sets: Fields that it sets with each write in addition.
        shows_whole: Whether it returns the whole object after a write, if the client prefers that.
        exchanges: The requests that it received.
        batches: The ids of each batch.
        valid_for_s: Validity of its filters.
        fresh: Whether its sketch is known to be the first one.
        endpoint: Where clients reach it.
        set_us: Offset of its clock, forward or back (microseconds).
        dates: Whether its responses carry their date if the client requests it.
    """

    def __init__(self, time: VirtualTime) -> None:
        self.time = time
        self.set_us = 0
        self.dates = True
        self.ttl_s = 60.0
        self.valid_for_s = 10.0
        self.filter_status = 200
        self.batch_status = 200
        self.is_partial = False
        self.batch_items: int | None = None
        self.batch_answer: bytes | None = None
        self.damage: Callable[[bytes], bytes] = bytes
        self.extra: dict[str, str] = {}
        self.visibility = "public"
        self.shows_whole = False
        self.sets: dict[str, Any] = {}
        self.groups = GROUPS
        self.exchanges: list[Exchange] = []
        self.batches: list[list[str]] = []
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.versions: dict[str, int] = {}
        self.fresh = True
        self.endpoint: Endpoint | None = None
        self.restart_sketch()
        self._pauses: list[Pause] = []
        self._tokens = 0

    def restart_sketch(self, *, fresh: bool = True) -> None:
        """Forget the sketch, as a restart would."""
        limits = SketchLimits(margin_s=0.0, max_ttl_s=60.0)
        self.sketch = MemorySketch(limits, SHAPE, self.clock_us, fresh=fresh)

    def clock_us(self) -> int:
        """The sketch's clock."""
        return EPOCH_US + self.set_us + round(self.time.now * 1_000_000)

    def date_us(self) -> int:
        """The replica's estimate of the sketch's time."""
        return self.clock_us()

    def hold(self, method: str, end: str, stage: Stage = "arrived") -> Pause:
        """Pause the next request whose path ends with `end`."""
        pause = Pause(method, end, stage)
        self._pauses.append(pause)
        return pause

    def requests(self, method: str = "GET", but: str = "/sketch") -> list[Exchange]:
        """Return the received requests, except those for filters."""
        return [e for e in self.exchanges if e.method == method and not e.path.endswith(but)]

    def filters(self) -> list[Exchange]:
        return [e for e in self.exchanges if e.path.endswith("/sketch")]

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        query = scope["query_string"].decode()
        path = scope["raw_path"].decode() + (f"?{query}" if query else "")
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        exchange = Exchange(scope["method"], path, headers)
        self.exchanges.append(exchange)
        reply = await self.reply(exchange, body)
        exchange.status = reply.status
        await send_reply(reply, send)

    async def reply(self, exchange: Exchange, body: bytes) -> Reply:
        await self._pass("arrived", exchange)
        segments = [unquote(segment) for segment in exchange.path.partition("?")[0].split("/")[3:]]
        if segments == ["sketch"]:
            reply = await self._filter(exchange)
        elif segments == ["batch"]:
            reply = self._batch(json.loads(body)["operations"])
        elif exchange.method == "GET":
            reply = await self._read(exchange, segments[0], segments[1])
        else:
            return await self._write(exchange, segments[0], segments[1:], body)
        reply.headers.update(self.extra)
        await self._pass("read", exchange)
        return reply

    async def _pass(self, stage: Stage, exchange: Exchange) -> None:
        for pause in self._pauses:
            fits = pause.method == exchange.method and exchange.path.endswith(pause.end)
            if pause.stage == stage and fits:
                self._pauses.remove(pause)
                pause.reached.set()
                await pause.opened.wait()
                return

    async def _filter(self, exchange: Exchange) -> Reply:
        if self.filter_status != 200:
            return problem(self.filter_status, "unavailable")
        partitions = [Partition("news", name) for name in self.groups]
        if self.fresh:
            for partition in partitions:
                await self.sketch.create(partition)
        self.set_us += 1  # no two filters are of the same microsecond
        snapshot = await self.sketch.snapshot(partitions)
        tag = f'"{snapshot.generation}-{snapshot.revision}-{len(json.dumps(self.groups))}"'
        headers = {
            "cache-control": "no-store",
            "etag": tag,
            "portolan-sketch-time": str(snapshot.time_us),
            "content-type": "application/vnd.portolan.sketch",
        }
        if exchange.headers.get("if-none-match") == tag:
            return Reply(304, b"", headers)
        return Reply(200, self.damage(encoded(snapshot, self.groups, self.valid_for_s)), headers)

    def _keys(self, class_name: str, id_: str, fields: set[str] | None = None) -> list[str]:
        groups = self.groups[class_name].items()
        names = [name for name, members in groups if fields is None or fields & set(members)]
        return [f"{class_name}/{id_}#{name}" for name in names]

    async def _read(self, exchange: Exchange, class_name: str, id_: str) -> Reply:
        parameters = dict(parse_qsl(exchange.path.partition("?")[2]))
        fields = set(parameters["fields"].split(",")) if "fields" in parameters else None
        keys = self._keys(class_name, id_, fields)
        partition = Partition("news", class_name)
        if self.fresh:
            await self.sketch.create(partition)
        if is_dated := "max_age" in parameters and self.dates and self.visibility == "public":
            grant = CacheGrant(self.date_us(), int(parameters["max_age"]) * 1_000_000)
            await self._pass("dated", exchange)
        else:
            grant = await self.sketch.report_read(partition, keys, self.ttl_s)
        value = self.objects.get((class_name, id_))
        versions = ".".join(f"{key.partition('#')[2]}:{self.versions.get(key, 0)}" for key in keys)
        headers = {"vary": "Prefer", "cache-status": "Portolan; fwd=miss"}
        if grant.ttl_us and "at-least" not in exchange.headers.get("prefer", ""):
            headers |= self._lifetime(grant.now_us, grant.ttl_us)
            headers |= {"portolan-as-of": str(grant.now_us)} if is_dated else {}
        else:
            headers["cache-control"] = "no-store"
        if value is None:
            reply = problem(404, "not-found")
            return Reply(404, reply.body, reply.headers | headers)
        headers["etag"] = f'"j1.{versions}"'
        if exchange.headers.get("if-none-match") == headers["etag"]:
            return Reply(304, b"", headers)
        visible = {k: v for k, v in value.items() if fields is None or k in fields}
        headers["content-type"] = "application/json"
        return Reply(200, json.dumps({"id": id_} | visible).encode(), headers)

    def _batch(self, operations: list[dict[str, str]]) -> Reply:
        """Answer a batch, which has reads only."""
        self.batches.append([operation["id"] for operation in operations])
        if self.batch_status != 200:
            return problem(self.batch_status, "unavailable")
        if self.batch_answer is not None:
            return Reply(200, self.batch_answer)
        included = operations[: self.batch_items]
        return Reply(200, json.dumps([self._item(operation) for operation in included]).encode())

    def _item(self, operation: dict[str, str]) -> dict[str, Any]:
        assert operation["op"] == "get"
        reference = class_name, id_ = operation["class"], operation["id"]
        if reference not in self.objects:
            return {"status": 404, "id": id_, "problem": {}}
        item: dict[str, Any] = {"id": id_, "etag": self.tag(class_name, id_)}
        if operation["if_none_match"] == item["etag"]:
            return {"status": 304, **item}
        if self.is_partial:
            item["partial"] = ["main"]
        return {"status": 200, **item, "body": {"id": id_} | self.objects[reference]}

    def _lifetime(self, now_us: int, ttl_us: int) -> dict[str, str]:
        shared = f"public, max-age=0, s-maxage={ttl_us // 1_000_000}, must-revalidate"
        private = "private, max-age=0, must-revalidate"
        return {
            "cache-control": shared if self.visibility == "public" else private,
            "portolan-expires": str(now_us + ttl_us),
        }

    async def _write(
        self, exchange: Exchange, class_name: str, segments: list[str], body: bytes
    ) -> Reply:
        value = json.loads(body or b"null")
        id_ = segments[0] if segments else value.get("id", "made")
        if_match = exchange.headers.get("if-match")
        if if_match is not None and if_match != self.tag(class_name, id_):
            return problem(412, "precondition-failed")
        if exchange.method == "DELETE" and (class_name, id_) not in self.objects:
            return problem(404, "not-found")
        fields = {*value, *self.sets} if exchange.method == "PATCH" else None
        keys = self._keys(class_name, id_, fields)
        partition = Partition("news", class_name)
        self._tokens += 1
        token = str(self._tokens)
        await self.sketch.begin(partition, keys, token)
        await self._pass("read", exchange)
        self._store(exchange.method, class_name, id_, value)
        for key in keys:
            self.versions[key] = self.versions.get(key, 0) + 1
        await self.sketch.end(partition, token, {})
        headers = {"cache-control": "no-store", "portolan-position": f"p{token}"}
        if exchange.method == "DELETE":
            return Reply(204, b"", headers)
        headers["etag"] = self.tag(class_name, id_)
        if not segments:
            headers["location"] = f"/v1/news/{class_name}/{id_}"
        if self.shows_whole and exchange.headers.get("prefer") == "return=representation":
            headers["preference-applied"] = "return=representation"
        document = {"id": id_} | self.objects[class_name, id_]
        return Reply(200 if segments else 201, json.dumps(document).encode(), headers)

    def _store(self, method: str, class_name: str, id_: str, value: Any) -> None:
        if method == "DELETE":
            del self.objects[class_name, id_]
        elif method == "PATCH":
            self.objects.setdefault((class_name, id_), {}).update(value | self.sets)
        else:
            members = {k: v for k, v in value.items() if k != "id"}
            self.objects[class_name, id_] = members | self.sets

    def tag(self, class_name: str, id_: str) -> str:
        keys = self._keys(class_name, id_)
        versions = ".".join(f"{key.partition('#')[2]}:{self.versions.get(key, 0)}" for key in keys)
        return f'"j1.{versions}"'

    async def write(self, class_name: str, id_: str, value: Mapping[str, Any]) -> None:
        """Write as another client would."""
        exchange = Exchange("PATCH", f"/v1/news/{class_name}/{id_}", {})
        await self._write(exchange, class_name, [id_], json.dumps(value).encode())


class SharedCache:
    """A cache before the origin, which does not use filters.

    Attributes:
        shows_age: Whether its answers have the header Age.
        obeys: Whether `no-cache` of a request makes it go to the origin.
        cached: Its replies, with the times at which it stored them and at which they expire.
    """

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.shows_age = True
        self.obeys = True
        self.cached: dict[str, tuple[Reply, float, float]] = {}

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        query = scope["query_string"].decode()
        path = scope["raw_path"].decode() + (f"?{query}" if query else "")
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        wants_origin = headers.get("cache-control") == "no-cache" and self.obeys
        if scope["method"] != "GET" or path.endswith("/sketch"):
            await self.origin(scope, receive, send)
            return
        reply, since, until = self.cached.get(path, (Reply(0), 0.0, 0.0))
        now = self.origin.time.now
        if wants_origin or until <= now:
            exchange = Exchange("GET", path, headers | {"if-none-match": ""})
            if wants_origin:
                exchange.headers["cache-control"] = "no-cache"
            self.origin.exchanges.append(exchange)
            reply = await self.origin.reply(exchange, b"")
            lifetime = reply.headers["cache-control"].partition("s-maxage=")[2].partition(",")[0]
            if lifetime:
                self.cached[path] = (reply, now, now + int(lifetime))
            fields = reply.headers
        else:
            fields = reply.headers | {"cache-status": "Portolan; fwd=miss, proxy; hit"}
            if self.shows_age:
                fields["age"] = str(int(now - since))
        if reply.status == 200 and headers.get("if-none-match") == reply.headers["etag"]:
            reply = Reply(304)
        await send_reply(Reply(reply.status, reply.body, fields), send)
