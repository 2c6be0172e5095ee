"""SIGKILL during writes, and a Redis that is rolled back: the feed stays complete and in order."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mediator.embedded.redis import EmbeddedRedis
from mediator.stores.port import SystemConfig
from tests.faults.caching.http_client import Answer, Connection, Unanswered, Unreachable
from tests.faults.conditions import eventually
from tests.faults.service import Service
from tests.faults.stores import KINDS, RestartableStores
from tests.process.service import field_on, scratch_catalogue, scratch_systems, unique

CLIENTS = 6
WRITES = 400
KILLS = 2
OBJECTS = 12
UPDATE = {"content-type": "application/vnd.portolan.update+json"}
CLASSES: dict[str, Any] = {
    "counts": {"fields": {"n": field_on("redis", "integer", default=0)}},
    "accounts": {"fields": {"n": field_on("postgres", "integer", default=0)}},
    "notes": {"fields": {"n": field_on("mongo", "float", default=0)}},
}


@pytest.fixture(scope="module")
def data_dir() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="portolan-feed-"))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def stores(data_dir: Path) -> Iterator[RestartableStores]:
    own_stores = RestartableStores(data_dir)
    try:
        with own_stores.running():
            yield own_stores
    finally:
        own_stores.end()


@dataclass(frozen=True)
class Shop:
    """A database of a service, whose feed is checked."""

    service: Service
    name: str

    @classmethod
    async def create(cls, service: Service) -> Shop:
        name = unique("shop")
        placements = await service.put_schema(name, CLASSES)
        assert len({placements[class_name] for class_name in CLASSES}) == 3
        return cls(service, name)

    async def get(self, target: str) -> Answer:
        with closing(Connection(self.service.data)) as http:
            return await http.request("GET", f"/v1/{self.name}/{target}")


@pytest.fixture(scope="module")
async def service(stores: RestartableStores) -> AsyncIterator[Service]:
    """A service on stores that can be killed, which also hold its feed and catalogue."""
    configs = stores.configs()
    async with Service.on(configs, configs[1].url, configs[0].url).running() as running:
        await running.favour()
        yield running


class Writers:
    """Clients that increment objects and count the acknowledged increments."""

    def __init__(self, shop: Shop) -> None:
        self._service, self._shop = shop.service, shop.name
        self.acknowledged: Counter[tuple[str, str]] = Counter()
        self.sent = 0

    async def create(self) -> None:
        with closing(Connection(self._service.data)) as http:
            for class_name in CLASSES:
                body = [{"id": f"o{n}"} for n in range(OBJECTS)]
                response = await http.request("POST", f"/v1/{self._shop}/{class_name}", body)
                assert response.status == 200

    async def run(self, count: int) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(self._write(self.sent + count))

    def count_by_class(self) -> Counter[str]:
        """Count the acknowledged increments of each class."""
        counts: Counter[str] = Counter()
        for (class_name, _), number in self.acknowledged.items():
            counts[class_name] += number
        return counts

    async def _write(self, total: int) -> None:
        with closing(Connection(self._service.data)) as http:
            while self.sent < total:
                self.sent += 1
                class_name = list(CLASSES)[self.sent % len(CLASSES)]
                id_ = f"o{self.sent // len(CLASSES) % OBJECTS}"
                path = f"/v1/{self._shop}/{class_name}/{id_}"
                await self._service.up.wait()
                try:
                    response = await http.request("PATCH", path, {"n": {"inc": 1}}, UPDATE)
                except (Unreachable, Unanswered):
                    continue
                if response.status == 200:
                    self.acknowledged[class_name, id_] += 1


async def feed_of(shop: Shop, after: str = "beginning") -> list[dict[str, Any]]:
    """Read a feed from a position to its end."""
    changes: list[dict[str, Any]] = []
    while True:
        response = await shop.get(f"changes?after={after}&limit=500")
        if response.status == 410:  # the feed has a new generation
            return await feed_of(shop)
        assert response.status == 200, response
        page = response.json()
        changes, after = changes + page["changes"], page["position"]
        if not page["changes"]:
            return changes


async def position_of(shop: Shop, after: str = "beginning") -> str | None:
    """Return the position after the first changes that follow `after`; None if `after` is gone."""
    response = await shop.get(f"changes?after={after}&limit=10")
    position: str | None = response.json().get("position")
    assert (response.status, position is None) in {(200, False), (410, True)}, response
    return position


async def values_of(shop: Shop) -> dict[tuple[str, str], float]:
    values: dict[tuple[str, str], float] = {}
    for class_name in CLASSES:
        response = await shop.get(f"{class_name}/export")
        assert response.status == 200, response
        values |= {(class_name, item["id"]): item["n"] for item in response.lines()}
    assert len(values) == len(CLASSES) * OBJECTS
    return values


@dataclass
class FeedSnapshot:
    """The changes of a feed, and the values of its objects."""

    shop: Shop
    changes: list[dict[str, Any]] = field(default_factory=list)
    values: dict[tuple[str, str], float] = field(default_factory=dict)

    async def is_complete(self) -> bool:
        """Return whether the last change of every object has its current value."""
        self.changes, self.values = await feed_of(self.shop), await values_of(self.shop)
        last = {(c["class"], c["object"]): c["after"]["n"] for c in self.changes}
        return last == self.values


async def complete_feed(shop: Shop) -> FeedSnapshot:
    """Wait until a feed is complete; unanswered writes can take effect before or after."""
    snapshot = FeedSnapshot(shop)
    await eventually(snapshot.is_complete)
    return snapshot


def check(changes: list[dict[str, Any]], values: dict[tuple[str, str], float]) -> None:
    """Require each value from 0 to the last one exactly once, with rising versions."""
    assert len({c["id"] for c in changes}) == len(changes), "a change occurs twice"
    objects = defaultdict(list)
    for change in changes:
        objects[change["class"], change["object"]].append(change)
    for name, value in values.items():
        versions = [c["version"] for c in objects[name]]
        assert versions == sorted(set(versions)), name
        assert [c["after"]["n"] for c in objects[name]] == list(range(int(value) + 1)), name


async def check_complete(shop: Shop, writers: Writers) -> None:
    """Require that the feed has all changes, with the acknowledged ones among them."""
    snapshot = await complete_feed(shop)
    check(snapshot.changes, snapshot.values)
    assert all(snapshot.values[name] >= n for name, n in writers.acknowledged.items())


@pytest.mark.timeout(400)
async def test_the_feed_is_complete_after_kills(service: Service) -> None:
    shop = await Shop.create(service)
    writers = Writers(shop)
    await writers.create()
    for _ in range(KILLS):
        writer_task = asyncio.create_task(writers.run(WRITES // KILLS))
        before = writers.sent
        await eventually(partial(_has_sent, writers, before + WRITES // KILLS // 2))
        await service.kill()
        await service.start()
        await writer_task
    await check_complete(shop, writers)


async def _has_sent(writers: Writers, count: int) -> bool:
    return writers.sent >= count


@pytest.mark.timeout(400)
async def test_the_feed_is_complete_after_stores_were_killed(
    service: Service, stores: RestartableStores
) -> None:
    """The killed Redis also holds the feed, the killed PostgreSQL the catalogue."""
    shop = await Shop.create(service)
    writers = Writers(shop)
    await writers.create()
    writer_task = asyncio.create_task(writers.run(sys.maxsize))
    try:
        for system in KINDS:
            await _advance(writers)
            with stores.killed(system):
                await eventually(partial(_is_refused, shop, system))
        await _advance(writers)
    finally:
        writer_task.cancel()
    await asyncio.wait({writer_task})
    await check_complete(shop, writers)
    assert not any("FeedGapFound" in line for line in service.output)


async def _advance(writers: Writers) -> None:
    """Wait for further acknowledged increments of every class."""
    before = writers.count_by_class()

    async def has_advanced() -> bool:
        counts = writers.count_by_class()
        return all(counts[name] >= before[name] + 10 for name in CLASSES)

    await eventually(has_advanced)


async def _is_refused(shop: Shop, system: str) -> bool:
    """Return whether the service has noticed that a store is down."""
    class_name = list(CLASSES)[list(KINDS).index(system)]
    return (await shop.get(f"{class_name}/o0")).status == 503


@pytest.fixture
async def falling(
    data_dir: Path,
    redis_config: SystemConfig,
    postgresql_config: SystemConfig,
    mongodb_config: SystemConfig,
) -> AsyncIterator[tuple[Shop, EmbeddedRedis]]:
    """A service of which only the coordination Redis can be restored to an older state."""
    server = EmbeddedRedis(data_dir / "coordination", "second")
    endpoint = await asyncio.to_thread(server.start)
    configs = (redis_config, postgresql_config, mongodb_config)
    async with (
        scratch_catalogue(postgresql_config) as catalogue,
        scratch_systems(*configs) as scratch,
        Service.on(scratch, catalogue, endpoint.url, relays="here").running() as service,
    ):
        await service.favour()
        yield await Shop.create(service), server
    await asyncio.to_thread(server.stop)


@pytest.mark.timeout(300)
async def test_all_changes_are_relayed_again_to_a_redis_restored_to_an_older_state(
    falling: tuple[Shop, EmbeddedRedis], data_dir: Path
) -> None:
    shop, server = falling
    writers = Writers(shop)
    await writers.create()
    await writers.run(100)
    await complete_feed(shop)
    directory, backup = data_dir / "coordination", data_dir / "older"
    await asyncio.to_thread(server.stop)
    shutil.copytree(directory, backup)
    await asyncio.to_thread(server.start)
    await writers.run(200)
    await complete_feed(shop)
    last_position = await position_of(shop) or ""
    await asyncio.to_thread(server.stop)
    shutil.rmtree(directory)
    shutil.move(backup, directory)
    await asyncio.to_thread(server.start)
    await writers.run(50)
    snapshot = await complete_feed(shop)
    check(snapshot.changes, snapshot.values)
    assert await position_of(shop, last_position) is None, "a follower could miss repeated changes"
    assert any("FeedRollbackFound" in line for line in shop.service.output)
    assert not any("FeedGapFound" in line for line in shop.service.output)
