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

from app.api.options import DataOptions, DataServices
from app.api.router import DataApi
from mediator.base.observation import ChangesRelayed
from mediator.changes.feed import PARTITIONS
from mediator.stores.port import SystemConfig
from tests.faults.conditions import WITHIN_S, eventually
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
CACHE_GROUPS = ("title", "hits", "note")
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
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)
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
        await self.hung_up.wait()
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
            fields = dict(line.split(": ", 1) for line in lines)
            self.last = fields["id"]
            if "data" in fields:
                assert fields["event"] == "change"
                self.events.append((fields["id"], orjson.loads(fields["data"])))

    async def until(self, count: int, prefix: str) -> list[dict[str, Any]]:
        """Wait for `count` events of objects with an id prefix; other events can still be late."""

        def matches() -> list[dict[str, Any]]:
            return [event for _, event in self.events if event["object"].startswith(prefix)]

        async with asyncio.timeout(WITHIN_S), self.arrived:
            await self.arrived.wait_for(lambda: len(matches()) >= count)
        return matches()

    async def wait_until_connected(self) -> None:
        async with asyncio.timeout(WITHIN_S), self.arrived:
            await self.arrived.wait_for(lambda: self.last is not None)


@asynccontextmanager
async def following(client: Client) -> AsyncIterator[Client]:
    task = asyncio.create_task(client.run())
    try:
        await client.wait_until_connected()
        yield client
    finally:
        client.hung_up.set()
        await task


@dataclass
class Harness:
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

    async def read_all(self, query: str = "", after: str = "beginning") -> list[dict[str, Any]]:
        """Read all changes, page by page."""
        changes: list[dict[str, Any]] = []
        while True:
            page, after = await self.page(f"after={after}&limit=7&{query}")
            changes += page
            if not page:
                return changes

    async def wait_until_relayed(self, id_: str, changes: int, after: str) -> None:
        """Wait until the feed has a number of changes of an object."""

        async def are_relayed() -> bool:
            events = await self.read_all("", after)
            return [event["object"] for event in events].count(id_) >= changes

        await eventually(are_relayed)

    async def create(self, id_: str) -> None:
        await self.service.create(self.database, "articles", id_, title="t", hits=0, note="n")

    async def hit(self, id_: str) -> None:
        await self.service.mediator.data.write(inc(self.database, "articles", id_))


@pytest.fixture(scope="module")
async def harness(
    redis_config: SystemConfig, postgresql_config: SystemConfig, mongodb_config: SystemConfig
) -> AsyncIterator[Harness]:
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
            DataServices(subscriptions=changes.subscriptions),
        )
        yield Harness(running, database, api)
        await running.mediator.control.delete_schema(database)


async def test_each_write_is_delivered_once_and_in_order(harness: Harness) -> None:
    ids = [f"a{n}" for n in range(20)]
    await asyncio.gather(*(harness.create(id_) for id_ in ids))
    for _ in range(5):
        await asyncio.gather(*(harness.hit(id_) for id_ in ids))
    async with following(Client(harness.api, harness.path, b"after=beginning")) as client:
        events = await client.until(20 * 3 + 20 * 5, "a")
    assert len({event["id"] for event in events}) == len(events)
    for id_ in ids:
        object_events = [e for e in events if e["object"] == id_]
        groups = {e["group"] for e in object_events}
        assert len(groups) == 3
        hits = [e for e in object_events if e["group"] == "hits"]
        assert [e["after"] for e in hits] == [{"hits": n} for n in range(6)]
        assert hits[0]["before"] is None
        versions = [e["version"] for e in hits]
        assert versions == sorted(set(versions))
    assert {e["database"] for e in events} == {harness.database}

    def relayed_systems() -> set[str]:
        return {o.system for o in harness.service.observed if isinstance(o, ChangesRelayed)}

    async def all_relayed() -> bool:  # observed only after the client has the changes
        return len(relayed_systems()) >= len(CACHE_GROUPS)

    await eventually(all_relayed)
    assert relayed_systems() == {"redis", "postgres", "mongo"}


async def test_changes_are_streamed_as_they_happen(harness: Harness) -> None:
    async with following(Client(harness.api, harness.path)) as client:
        await harness.create("live")
        events = await client.until(3, "live")
    assert {e["object"] for e in events} == {"live"}
    assert {e["before"] for e in events} == {None}


async def test_a_stream_is_resumed_after_any_event(harness: Harness) -> None:
    async with following(Client(harness.api, harness.path)) as client:
        for n in range(8):
            await harness.create(f"resumed{n}")
        events = await client.until(24, "resumed")
        positions = [position for position, e in client.events if e["object"].startswith("resumed")]
    for index in (0, 5, 23):
        resumed = Client(harness.api, harness.path, last=positions[index])
        async with following(resumed):
            await harness.create(f"after{index}")
            await resumed.until(24 - index - 1, "resumed")
            await resumed.until(3, f"after{index}")
        ids = {e["id"] for _, e in resumed.events}
        assert ids >= {e["id"] for e in events[index + 1 :]}
        assert not ids & {e["id"] for e in events[: index + 1]}


async def test_long_polling_returns_the_same_changes(harness: Harness) -> None:
    _, position = await harness.page("")
    for n in range(5):
        await harness.create(f"poll{n}")
    events: list[dict[str, Any]] = []
    while len(events) < 15:
        page, position = await harness.page(f"after={position}&limit=4&wait=30")
        assert 0 < len(page) <= 4
        events += [e for e in page if e["object"].startswith("poll")]
    assert {e["object"] for e in events} == {f"poll{n}" for n in range(5)}
    assert len({e["id"] for e in events}) == 15
    assert await harness.page(f"after={position}") == ([], position)


async def test_a_poll_waits_for_the_first_change(harness: Harness) -> None:
    _, position = await harness.page("")
    poll = asyncio.create_task(harness.page(f"after={position}&wait=30"))
    await harness.service.create(harness.database, "others", "waited", title="x")
    page, _ = await poll
    assert [e["object"] for e in page] == ["waited"]


async def test_a_class_is_followed_alone(harness: Harness) -> None:
    _, position = await harness.page("")
    await harness.create("mixed")
    await harness.service.create(harness.database, "others", "mixed", title="x")
    await harness.wait_until_relayed("mixed", len(CACHE_GROUPS) + 1, position)
    events = await harness.read_all("class=others", position)
    assert {e["class"] for e in events} == {"others"}
    assert [e["object"] for e in events] == ["mixed"]


async def test_a_page_of_large_changes_ends_before_its_limit(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.api.changes.PAGE_BYTES", 1)
    _, position = await harness.page("")
    await asyncio.gather(*(harness.create(f"large{n}") for n in range(40)))
    await eventually(partial(_all_relayed, harness, "large"))
    events: list[dict[str, Any]] = []
    while True:
        page, position = await harness.page(f"limit=1000&after={position}")
        if not page:
            break
        assert len(page) < 120
        events += page
    assert len({event["id"] for event in events}) == len(events) == 120


async def test_slow_followers_miss_nothing(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mediator.changes.subscriptions.CAPACITY", 5)
    async with following(Client(harness.api, harness.path)) as client:
        async with client.arrived:  # the client reads nothing meanwhile
            await asyncio.gather(*(harness.create(f"slow{n}") for n in range(40)))
            await eventually(partial(_all_relayed, harness, "slow"))
        events = await client.until(120, "slow")
    assert len({e["id"] for e in events}) == len(events) == 120


async def _all_relayed(harness: Harness, prefix: str) -> bool:
    events = await harness.read_all("class=articles")
    return len([e for e in events if e["object"].startswith(prefix)]) == 120


async def test_an_invalid_position_is_refused(harness: Harness) -> None:
    _, position = await harness.page("")
    for text in ("x", "", "%00", position[:-3], position + "AAAA", "ä".encode().hex() * 200):
        answer = await harness.get(f"after={text}")
        assert (answer.status, answer.json()["type"]) == (400, "/problems/invalid"), text
    answer = await harness.get("", [(b"last-event-id", b"nonsense"), STREAM])
    assert answer.status == 400
    for query in ("limit=0", "limit=1001", "wait=31", "wait=-1", "since=1", "class="):
        assert (await harness.get(query)).status in {400, 404}, query


async def test_positions_that_are_gone_are_reported(
    harness: Harness, redis_config: SystemConfig
) -> None:
    from mediator.coordination.connecting import connect

    await harness.create("gone")
    feed = harness.service.mediator.changes.subscriptions
    assert feed is not None
    old = await feed.beginning(harness.database_id)
    redis = connect(redis_config.url)
    floor = f"{{portolan:feed:{harness.database_id}}}:floor"
    await redis.hset(floor, mapping={str(p): "1-1" for p in range(PARTITIONS)})
    answer = await harness.get(f"after={old.text}")
    assert (answer.status, answer.json()["type"]) == (410, "/problems/gone")
    assert (await harness.get("after=beginning")).status == 200
    await redis.delete(floor)
    other = (await feed.now(harness.database_id)).text
    await redis.set(f"{{portolan:feed:{harness.database_id}}}:generation", "ab" * 16)
    answer = await harness.get("", [(b"last-event-id", other.encode()), STREAM])
    assert answer.status == 410
    await redis.aclose()


async def test_a_stream_of_a_lost_feed_ends(harness: Harness, redis_config: SystemConfig) -> None:
    from mediator.coordination.connecting import connect

    redis = connect(redis_config.url)
    async with following(Client(harness.api, harness.path)) as client:
        await redis.set(f"{{portolan:feed:{harness.database_id}}}:generation", "cd" * 16)
        async with asyncio.timeout(WITHIN_S), client.arrived:
            await client.arrived.wait_for(lambda: client.ended)
    await redis.aclose()


async def test_unknown_names_are_not_found(harness: Harness) -> None:
    assert (await harness.get("class=nothing")).status == 404
    assert (await send_raw(harness.api, "GET", b"/v1/nowhere/changes")).status == 404
    assert (await send_raw(harness.api, "POST", harness.path)).status == 405
    answer = await harness.get("", [(b"accept", b"text/html")])
    assert answer.status == 406


async def test_without_a_feed_the_setting_is_named(harness: Harness) -> None:
    api = DataApi(harness.service.mediator.data, DataOptions(cursor_key=b"k" * 32), lambda _: None)
    answer = await send_raw(api, "GET", harness.path)
    assert answer.status == 503
    assert "PORTOLAN_COORDINATION_URL" in answer.json()["detail"]


async def test_deletions_are_relayed(harness: Harness) -> None:
    from mediator.model.operations import Delete
    from tests.process.service import unique

    await harness.create("deleted")
    await harness.wait_until_relayed("deleted", len(CACHE_GROUPS), "beginning")
    _, position = await harness.page("")
    await harness.service.mediator.data.write(
        Delete(harness.database, "articles", "deleted", unique("op"))
    )
    await harness.wait_until_relayed("deleted", len(CACHE_GROUPS), position)
    deletions = [e for e in await harness.read_all("", position) if e["kind"] == "delete"]
    assert {e["group"] for e in deletions} == {"main", "hits", "note"}
    assert {e["after"] for e in deletions} == {None}


async def test_the_end_of_the_process_ends_streams(harness: Harness) -> None:
    async with following(Client(harness.api, harness.path)) as client:
        assert harness.service.mediator.changes.subscriptions is not None
        harness.service.mediator.changes.subscriptions.end()
        async with asyncio.timeout(WITHIN_S), client.arrived:
            await client.arrived.wait_for(lambda: client.ended)
