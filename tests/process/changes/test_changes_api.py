"""The change feed over HTTP, from three systems at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson
import pytest

from app.api.options import DataOptions
from app.api.router import DataApi
from mediator.base.observation import ChangesRelayed
from mediator.changes.feed import PARTITIONS
from mediator.stores.port import SystemConfig
from tests.faults.conditions import eventually
from tests.process.operation.asgi_driver import Answer, send_raw
from tests.process.service import (
    Service,
    field_on,
    inc,
    scratch_catalogue,
    scratch_systems,
    service,
)

CLASSES: dict[str, Any] = {
    "articles": {
        "fields": {
            "title": field_on("postgres"),
            "hits": field_on("redis", "integer", default=0, group="hits"),
            "note": field_on("mongo", group="note"),
        }
    },
    "others": {"fields": {"title": field_on("redis")}},
}
PARTS = ("title", "hits", "note")
WAIT_S = 30
STREAM = (b"accept", b"text/event-stream")


@dataclass
class Client:
    """Follows the feed by server-sent events, until it hangs up."""

    api: DataApi
    path: bytes
    query: bytes = b""
    last: str | None = None
    status: int = 0
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    ended: bool = False
    _text: bytes = b""

    async def run(self) -> None:
        headers = [STREAM]
        if self.last is not None:
            headers.append((b"last-event-id", self.last.encode()))
        scope = {
            "type": "http",
            "method": "GET",
            "raw_path": self.path,
            "query_string": self.query,
            "headers": headers,
        }
        await self.api(scope, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        async with self.arrived:
            if message["type"] == "http.response.start":
                self.status = message["status"]
            else:
                self._read(message["body"])
                self.ended = not message.get("more_body", False)
            self.arrived.notify_all()

    def _read(self, chunk: bytes) -> None:
        self._text += chunk
        *blocks, self._text = self._text.split(b"\n\n")
        for block in blocks:
            lines = [line for line in block.decode().split("\n") if not line.startswith(":")]
            told = dict(line.split(": ", 1) for line in lines)
            self.last = told["id"]
            if "data" in told:
                assert told["event"] == "change"
                self.events.append((told["id"], orjson.loads(told["data"])))

    async def until(self, count: int, of: str) -> list[dict[str, Any]]:
        """Wait for so many events of objects whose ids begin alike; others may still be late."""

        def found() -> list[dict[str, Any]]:
            return [event for _, event in self.events if event["object"].startswith(of)]

        async with asyncio.timeout(WAIT_S), self.arrived:
            await self.arrived.wait_for(lambda: len(found()) >= count)
        return found()

    async def connected(self) -> None:
        async with asyncio.timeout(WAIT_S), self.arrived:
            await self.arrived.wait_for(lambda: self.last is not None)


@asynccontextmanager
async def following(client: Client) -> AsyncIterator[Client]:
    task = asyncio.create_task(client.run())
    try:
        await client.connected()
        yield client
    finally:
        client.gone.set()
        await task


@dataclass
class Bench:
    """A service with a feed, and its data API."""

    service: Service
    database: str
    api: DataApi

    @property
    def path(self) -> bytes:
        return f"/v1/{self.database}/changes".encode()

    @property
    def database_id(self) -> str:
        return self.service.mediator.data.model.databases[self.database].id

    async def get(self, query: str = "", headers: Any = ()) -> Answer:
        return await send_raw(self.api, "GET", self.path, query=query.encode(), headers=headers)

    async def page(self, query: str) -> tuple[list[dict[str, Any]], str]:
        answer = await self.get(query)
        assert answer.status == 200, answer
        document = answer.json()
        return document["changes"], document["position"]

    async def everything(self, query: str = "", after: str = "beginning") -> list[dict[str, Any]]:
        """Read page by page up to now."""
        found: list[dict[str, Any]] = []
        while True:
            page, after = await self.page(f"after={after}&limit=7&wait=1&{query}")
            found += page
            if not page:
                return found

    async def create(self, id_: str) -> None:
        await self.service.create(self.database, "articles", id_, title="t", hits=0, note="n")

    async def hit(self, id_: str) -> None:
        await self.service.mediator.data.write(inc(self.database, "articles", id_))


@pytest.fixture(scope="module")
async def bench(
    redis_config: SystemConfig, postgresql_config: SystemConfig, mongodb_config: SystemConfig
) -> AsyncIterator[Bench]:
    configs = (redis_config, postgresql_config, mongodb_config)
    async with (
        scratch_catalogue(postgresql_config) as catalogue,
        scratch_systems(*configs) as scratch,
        service(scratch, catalogue, coordination_url=redis_config.url) as running,
    ):
        await running.favour()
        database = await running.put_schema(CLASSES)
        assert len(running.systems_of(database, "articles")) == 3
        changes = running.mediator.changes
        api = DataApi(
            running.mediator.data,
            DataOptions(cursor_key=b"k" * 32),
            running.observed.append,
            changes.subscriptions,
        )
        yield Bench(running, database, api)
        await running.mediator.control.delete_schema(database)


async def test_each_write_is_told_once_and_in_order(bench: Bench) -> None:
    ids = [f"a{n}" for n in range(20)]
    await asyncio.gather(*(bench.create(id_) for id_ in ids))
    for _ in range(5):
        await asyncio.gather(*(bench.hit(id_) for id_ in ids))
    async with following(Client(bench.api, bench.path, b"after=beginning")) as client:
        events = await client.until(20 * 3 + 20 * 5, "a")
    assert len({event["id"] for event in events}) == len(events)
    for id_ in ids:
        own = [e for e in events if e["object"] == id_]
        groups = {e["group"] for e in own}
        assert len(groups) == 3
        hits = [e for e in own if e["group"] == "hits"]
        assert [e["after"] for e in hits] == [{"hits": n} for n in range(6)]
        assert hits[0]["before"] is None
        versions = [e["version"] for e in hits]
        assert versions == sorted(set(versions))
    assert {e["database"] for e in events} == {bench.database}
    systems = {o.system for o in bench.service.observed if isinstance(o, ChangesRelayed)}
    assert systems == {"redis", "postgres", "mongo"}


async def test_changes_come_as_they_are_made(bench: Bench) -> None:
    async with following(Client(bench.api, bench.path)) as client:
        await bench.create("live")
        events = await client.until(3, "live")
    assert {e["object"] for e in events} == {"live"}
    assert {e["before"] for e in events} == {None}


async def test_a_stream_is_resumed_after_any_event(bench: Bench) -> None:
    async with following(Client(bench.api, bench.path)) as client:
        for n in range(8):
            await bench.create(f"resumed{n}")
        whole = await client.until(24, "resumed")
        positions = [place for place, e in client.events if e["object"].startswith("resumed")]
    for seen in (0, 5, 23):
        resumed = Client(bench.api, bench.path, last=positions[seen])
        async with following(resumed):
            await bench.create(f"after{seen}")
            await resumed.until(24 - seen - 1, "resumed")
            await resumed.until(3, f"after{seen}")
        told = {e["id"] for _, e in resumed.events}
        assert told >= {e["id"] for e in whole[seen + 1 :]}
        assert not told & {e["id"] for e in whole[: seen + 1]}


async def test_long_polling_tells_the_same(bench: Bench) -> None:
    _, position = await bench.page("")
    for n in range(5):
        await bench.create(f"poll{n}")
    found: list[dict[str, Any]] = []
    while len(found) < 15:
        page, position = await bench.page(f"after={position}&limit=4&wait=30")
        assert 0 < len(page) <= 4
        found += [e for e in page if e["object"].startswith("poll")]
    assert {e["object"] for e in found} == {f"poll{n}" for n in range(5)}
    assert len({e["id"] for e in found}) == 15
    assert await bench.page(f"after={position}") == ([], position)


async def test_a_poll_waits_for_the_first_change(bench: Bench) -> None:
    _, position = await bench.page("")
    poll = asyncio.create_task(bench.page(f"after={position}&wait=30"))
    await bench.service.create(bench.database, "others", "waited", title="x")
    page, _ = await poll
    assert [e["object"] for e in page] == ["waited"]


async def test_a_class_is_followed_alone(bench: Bench) -> None:
    _, position = await bench.page("")
    await bench.create("mixed")
    await bench.service.create(bench.database, "others", "mixed", title="x")
    told = await bench.everything("class=others", position)
    assert {e["class"] for e in told} == {"others"}
    assert [e["object"] for e in told] == ["mixed"]


async def test_slow_followers_miss_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mediator.changes.subscriptions._CAPACITY", 5)
    async with following(Client(bench.api, bench.path)) as client:
        async with client.arrived:  # it takes nothing more for the moment
            await asyncio.gather(*(bench.create(f"slow{n}") for n in range(40)))
            await eventually(partial(_all_relayed, bench))
        events = await client.until(120, "slow")
    assert len({e["id"] for e in events}) == len(events) == 120


async def _all_relayed(bench: Bench) -> bool:
    told = await bench.everything("class=articles")
    return len([e for e in told if e["object"].startswith("slow")]) == 120


async def test_what_is_no_position_is_refused(bench: Bench) -> None:
    _, position = await bench.page("")
    for text in ("x", "", "%00", position[:-3], position + "AAAA", "ä".encode().hex() * 200):
        answer = await bench.get(f"after={text}")
        assert (answer.status, answer.json()["type"]) == (400, "/problems/invalid"), text
    answer = await bench.get("", [(b"last-event-id", b"nonsense"), STREAM])
    assert answer.status == 400
    for query in ("limit=0", "limit=1001", "wait=31", "wait=-1", "since=1", "class="):
        assert (await bench.get(query)).status in {400, 404}, query


async def test_positions_that_are_gone_are_told(bench: Bench, redis_config: SystemConfig) -> None:
    from mediator.coordination.connecting import connect

    await bench.create("gone")
    feed = bench.service.mediator.changes.subscriptions
    assert feed is not None
    old = await feed.beginning(bench.database_id)
    redis = connect(redis_config.url)
    floor = f"{{portolan:feed:{bench.database_id}}}:floor"
    await redis.hset(floor, mapping={str(p): "1-1" for p in range(PARTITIONS)})
    answer = await bench.get(f"after={old.text}")
    assert (answer.status, answer.json()["type"]) == (410, "/problems/gone")
    assert (await bench.get("after=beginning")).status == 200
    await redis.delete(floor)
    other = (await feed.now(bench.database_id)).text
    await redis.set(f"{{portolan:feed:{bench.database_id}}}:generation", "ab" * 16)
    answer = await bench.get("", [(b"last-event-id", other.encode()), STREAM])
    assert answer.status == 410
    await redis.aclose()


async def test_a_stream_of_a_lost_feed_ends(bench: Bench, redis_config: SystemConfig) -> None:
    from mediator.coordination.connecting import connect

    redis = connect(redis_config.url)
    async with following(Client(bench.api, bench.path)) as client:
        await redis.set(f"{{portolan:feed:{bench.database_id}}}:generation", "cd" * 16)
        async with asyncio.timeout(30), client.arrived:
            await client.arrived.wait_for(lambda: client.ended)
    await redis.aclose()


async def test_unknown_names_are_not_found(bench: Bench) -> None:
    assert (await bench.get("class=nothing")).status == 404
    assert (await send_raw(bench.api, "GET", b"/v1/nowhere/changes")).status == 404
    assert (await send_raw(bench.api, "POST", bench.path)).status == 405
    answer = await bench.get("", [(b"accept", b"text/html")])
    assert answer.status == 406


async def test_without_a_feed_the_setting_is_named(bench: Bench) -> None:
    api = DataApi(bench.service.mediator.data, DataOptions(cursor_key=b"k" * 32), lambda _: None)
    answer = await send_raw(api, "GET", bench.path)
    assert answer.status == 503
    assert "PORTOLAN_COORDINATION_URL" in answer.json()["detail"]


async def test_deletions_are_told(bench: Bench) -> None:
    from mediator.model.operations import Delete
    from tests.process.service import unique

    await bench.create("dead")
    _, position = await bench.page("")
    await bench.service.mediator.data.write(
        Delete(bench.database, "articles", "dead", unique("op"))
    )
    told = [e for e in await bench.everything("", position) if e["kind"] == "delete"]
    assert {e["group"] for e in told} == {"main", "hits", "note"}
    assert {e["after"] for e in told} == {None}


async def test_the_end_of_the_process_ends_streams(bench: Bench) -> None:
    async with following(Client(bench.api, bench.path)) as client:
        bench.service.mediator.changes.end_streams()
        async with asyncio.timeout(30), client.arrived:
            await client.arrived.wait_for(lambda: client.ended)
