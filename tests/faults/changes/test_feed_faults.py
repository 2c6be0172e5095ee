"""SIGKILL while the feed is filled, and a Redis that falls back: nothing is lost; all in order."""

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
from tests.faults.stores import KINDS, OwnStores
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
def stores(data_dir: Path) -> Iterator[OwnStores]:
    own = OwnStores(data_dir)
    try:
        with own.running():
            yield own
    finally:
        own.end()


@dataclass(frozen=True)
class Shop:
    """A database of a service, whose changes are looked at."""

    service: Service
    name: str

    @classmethod
    async def begin(cls, service: Service) -> Shop:
        name = unique("shop")
        placed = await service.put_schema(name, CLASSES)
        assert len({placed[class_name] for class_name in CLASSES}) == 3
        return cls(service, name)

    async def get(self, target: str) -> Answer:
        with closing(Connection(self.service.data)) as http:
            return await http.request("GET", f"/v1/{self.name}/{target}")


@pytest.fixture(scope="module")
async def service(stores: OwnStores) -> AsyncIterator[Service]:
    """A service on stores that can be killed, which hold its feed and its catalogue as well."""
    configs = stores.configs()
    async with Service.on(configs, configs[1].url, configs[0].url).running() as started:
        await started.favour()
        yield started


class Writers:
    """Clients that count objects up, and remember what was acknowledged."""

    def __init__(self, shop: Shop) -> None:
        self._service, self._shop = shop.service, shop.name
        self.acknowledged: Counter[tuple[str, str]] = Counter()
        self.sent = 0

    async def create(self) -> None:
        with closing(Connection(self._service.data)) as http:
            for class_name in CLASSES:
                body = [{"id": f"o{n}"} for n in range(OBJECTS)]
                answer = await http.request("POST", f"/v1/{self._shop}/{class_name}", body)
                assert answer.status == 200

    async def run(self, most: int) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(self._write(self.sent + most))

    def by_class(self) -> Counter[str]:
        """Count what was acknowledged of each class."""
        counted: Counter[str] = Counter()
        for (class_name, _), number in self.acknowledged.items():
            counted[class_name] += number
        return counted

    async def _write(self, until: int) -> None:
        with closing(Connection(self._service.data)) as http:
            while self.sent < until:
                self.sent += 1
                class_name = list(CLASSES)[self.sent % len(CLASSES)]
                id_ = f"o{self.sent // len(CLASSES) % OBJECTS}"
                path = f"/v1/{self._shop}/{class_name}/{id_}"
                await self._service.up.wait()
                try:
                    answer = await http.request("PATCH", path, {"n": {"inc": 1}}, UPDATE)
                except (Unreachable, Unanswered):
                    continue
                if answer.status == 200:
                    self.acknowledged[class_name, id_] += 1


async def feed_of(shop: Shop, after: str = "beginning") -> list[dict[str, Any]]:
    """Read a feed from a position up to now."""
    found: list[dict[str, Any]] = []
    while True:
        answer = await shop.get(f"changes?after={after}&limit=500")
        if answer.status == 410:  # the feed got a new generation meanwhile
            return await feed_of(shop)
        assert answer.status == 200, answer
        page = answer.json()
        found, after = found + page["changes"], page["position"]
        if not page["changes"]:
            return found


async def position_of(shop: Shop, after: str = "beginning") -> str | None:
    """Return the position after the first changes beyond another one; None if that is gone."""
    answer = await shop.get(f"changes?after={after}&limit=10")
    position: str | None = answer.json().get("position")
    assert (answer.status, position is None) in {(200, False), (410, True)}, answer
    return position


async def values_of(shop: Shop) -> dict[tuple[str, str], float]:
    values: dict[tuple[str, str], float] = {}
    for class_name in CLASSES:
        answer = await shop.get(f"{class_name}/export")
        assert answer.status == 200, answer
        values |= {(class_name, each["id"]): each["n"] for each in answer.lines()}
    assert len(values) == len(CLASSES) * OBJECTS
    return values


@dataclass
class Compared:
    """A feed, and the values of its objects when it had all of their changes."""

    shop: Shop
    changes: list[dict[str, Any]] = field(default_factory=list)
    values: dict[tuple[str, str], float] = field(default_factory=dict)

    async def is_complete(self) -> bool:
        """Whether the last change of every object has its current value."""
        self.changes, self.values = await feed_of(self.shop), await values_of(self.shop)
        last = {(c["class"], c["object"]): c["after"]["n"] for c in self.changes}
        return last == self.values


async def complete(shop: Shop) -> Compared:
    """Wait until a feed is complete; writes without an answer may take effect before and after."""
    compared = Compared(shop)
    await eventually(compared.is_complete)
    return compared


def check(changes: list[dict[str, Any]], values: dict[tuple[str, str], float]) -> None:
    """Each value from 0 to the last one is in it once, with rising versions."""
    assert len({c["id"] for c in changes}) == len(changes), "a change is there twice"
    objects = defaultdict(list)
    for change in changes:
        objects[change["class"], change["object"]].append(change)
    for name, value in values.items():
        versions = [c["version"] for c in objects[name]]
        assert versions == sorted(set(versions)), name
        assert [c["after"]["n"] for c in objects[name]] == list(range(int(value) + 1)), name


async def check_complete(shop: Shop, writers: Writers) -> None:
    """The feed has all changes, and what was acknowledged is among them."""
    compared = await complete(shop)
    check(compared.changes, compared.values)
    assert all(compared.values[name] >= n for name, n in writers.acknowledged.items())


@pytest.mark.timeout(400)
async def test_the_feed_is_complete_after_kills(service: Service) -> None:
    shop = await Shop.begin(service)
    writers = Writers(shop)
    await writers.create()
    for _ in range(KILLS):
        writing = asyncio.create_task(writers.run(WRITES // KILLS))
        before = writers.sent
        await eventually(partial(_beyond, writers, before + WRITES // KILLS // 2))
        await service.kill()
        await service.start()
        await writing
    await check_complete(shop, writers)


async def _beyond(writers: Writers, count: int) -> bool:
    return writers.sent >= count


@pytest.mark.timeout(400)
async def test_the_feed_is_complete_after_stores_were_killed(
    service: Service, stores: OwnStores
) -> None:
    """The Redis that is killed is the feed's own as well, the PostgreSQL that of the catalogue."""
    shop = await Shop.begin(service)
    writers = Writers(shop)
    await writers.create()
    writing = asyncio.create_task(writers.run(sys.maxsize))
    try:
        for system in KINDS:
            await _advance(writers)
            with stores.killed(system):
                await eventually(partial(_refused, shop, system))
        await _advance(writers)
    finally:
        writing.cancel()
    await asyncio.wait({writing})
    await check_complete(shop, writers)
    assert not any("FeedGapFound" in line for line in service.output)


async def _advance(writers: Writers) -> None:
    """Wait until something more has been acknowledged of every class."""
    before = writers.by_class()

    async def beyond() -> bool:
        now = writers.by_class()
        return all(now[name] >= before[name] + 10 for name in CLASSES)

    await eventually(beyond)


async def _refused(shop: Shop, system: str) -> bool:
    """Whether the service has met the death of a store."""
    class_name = list(CLASSES)[list(KINDS).index(system)]
    return (await shop.get(f"{class_name}/o0")).status == 503


@pytest.fixture
async def falling(
    data_dir: Path,
    redis_config: SystemConfig,
    postgresql_config: SystemConfig,
    mongodb_config: SystemConfig,
) -> AsyncIterator[tuple[Shop, EmbeddedRedis]]:
    """A service whose coordination Redis, and only that one, can be restored to an older state."""
    server = EmbeddedRedis(data_dir / "coordination", "second")
    endpoint = await asyncio.to_thread(server.start)
    configs = (redis_config, postgresql_config, mongodb_config)
    async with (
        scratch_catalogue(postgresql_config) as catalogue,
        scratch_systems(*configs) as scratch,
        Service.on(scratch, catalogue, endpoint.url, relays="here").running() as service,
    ):
        await service.favour()
        yield await Shop.begin(service), server
    await asyncio.to_thread(server.stop)


@pytest.mark.timeout(300)
async def test_a_redis_restored_to_an_older_state_gets_all_changes_again(
    falling: tuple[Shop, EmbeddedRedis], data_dir: Path
) -> None:
    shop, server = falling
    writers = Writers(shop)
    await writers.create()
    await writers.run(100)
    await complete(shop)
    home, older = data_dir / "coordination", data_dir / "older"
    await asyncio.to_thread(server.stop)
    shutil.copytree(home, older)
    await asyncio.to_thread(server.start)
    await writers.run(200)
    await complete(shop)
    reached = await position_of(shop) or ""
    await asyncio.to_thread(server.stop)
    shutil.rmtree(home)
    shutil.move(older, home)
    await asyncio.to_thread(server.start)
    await writers.run(50)
    compared = await complete(shop)
    check(compared.changes, compared.values)
    assert await position_of(shop, reached) is None, "a follower may miss what came again"
    assert any("FeedRollbackFound" in line for line in shop.service.output)
    assert not any("FeedGapFound" in line for line in shop.service.output)
