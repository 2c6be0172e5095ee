"""SIGKILL while the feed is filled, and a Redis that falls back: nothing is lost; all in order."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mediator.embedded.redis import EmbeddedRedis
from mediator.stores.port import SystemConfig
from tests.faults.caching.http_client import Connection, Unanswered, Unreachable
from tests.faults.conditions import eventually
from tests.faults.service import Service
from tests.faults.stores import KINDS, OwnStores, Stores
from tests.process.service import field_on, scratch_catalogue, scratch_systems

CLIENTS = 6
WRITES = 600
KILLS = 3
OBJECTS = 12
UPDATE = {"content-type": "application/vnd.portolan.update+json"}
CLASSES: dict[str, Any] = {
    "counts": {"fields": {"n": field_on("redis", "integer", default=0)}},
    "accounts": {"fields": {"n": field_on("postgres", "integer", default=0)}},
    "notes": {"fields": {"n": field_on("mongo", "float", default=0)}},
}


@pytest.fixture
def data_dir() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="portolan-feed-"))
    yield directory
    Stores(directory).end()
    shutil.rmtree(directory)


class Writers:
    """Clients that count objects up, and remember what was acknowledged."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.acknowledged: Counter[tuple[str, str]] = Counter()
        self.sent = 0

    async def create(self) -> None:
        with closing(Connection(self._service.data)) as http:
            for class_name in CLASSES:
                body = [{"id": f"o{n}"} for n in range(OBJECTS)]
                answer = await http.request("POST", f"/v1/shop/{class_name}", body)
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
                path = f"/v1/shop/{class_name}/{id_}"
                await self._service.up.wait()
                try:
                    answer = await http.request("PATCH", path, {"n": {"inc": 1}}, UPDATE)
                except (Unreachable, Unanswered):
                    continue
                if answer.status == 200:
                    self.acknowledged[class_name, id_] += 1


async def feed_of(service: Service, after: str = "beginning") -> list[dict[str, Any]]:
    """Read a feed from a position up to now."""
    found: list[dict[str, Any]] = []
    with closing(Connection(service.data)) as http:
        while True:
            path = f"/v1/shop/changes?after={after}&limit=500"
            answer = await http.request("GET", path)
            if answer.status == 410:  # the feed got a new generation meanwhile
                return await feed_of(service)
            assert answer.status == 200, answer
            page = answer.json()
            found, after = found + page["changes"], page["position"]
            if not page["changes"]:
                return found


async def position_of(service: Service, after: str = "beginning") -> str | None:
    """Return the position after the first changes beyond another one; None if that is gone."""
    with closing(Connection(service.data)) as http:
        answer = await http.request("GET", f"/v1/shop/changes?after={after}&limit=10")
    position: str | None = answer.json().get("position")
    assert (answer.status, position is None) in {(200, False), (410, True)}, answer
    return position


async def values_of(service: Service) -> dict[tuple[str, str], float]:
    values = {}
    with closing(Connection(service.data)) as http:
        for class_name in CLASSES:
            for n in range(OBJECTS):
                answer = await http.request("GET", f"/v1/shop/{class_name}/o{n}")
                assert answer.status == 200, answer
                values[class_name, f"o{n}"] = answer.json()["n"]
    return values


async def is_complete(service: Service) -> bool:
    """Whether the last change of every object has its current value."""
    last = {(c["class"], c["object"]): c["after"]["n"] for c in await feed_of(service)}
    return last == await values_of(service)


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


@pytest.mark.timeout(400)
async def test_the_feed_is_complete_after_kills(data_dir: Path) -> None:
    try:
        async with Service.embedded(data_dir).running() as service:
            await service.favour()
            placed = await service.put_schema("shop", CLASSES)
            assert len({placed[name] for name in CLASSES}) == 3
            writers = Writers(service)
            await writers.create()
            for _ in range(KILLS):
                writing = asyncio.create_task(writers.run(WRITES // KILLS))
                before = writers.sent
                await eventually(partial(_beyond, writers, before + WRITES // KILLS // 2))
                await service.kill()
                await service.start()
                await writing
            await eventually(partial(is_complete, service))
            values = await values_of(service)
            check(await feed_of(service), values)
            assert all(values[name] >= n for name, n in writers.acknowledged.items())
    finally:
        Stores(data_dir).end()


async def _beyond(writers: Writers, count: int) -> bool:
    return writers.sent >= count


@pytest.mark.timeout(400)
async def test_the_feed_is_complete_after_stores_were_killed(data_dir: Path) -> None:
    """The Redis that is killed is the feed's own as well, the PostgreSQL that of the catalogue."""
    stores = OwnStores(data_dir)
    with stores.running():
        configs = stores.configs()
        redis, postgres = configs[0].url, configs[1].url
        async with Service.on(configs, postgres, redis).running() as service:
            await service.favour()
            await service.put_schema("shop", CLASSES)
            writers = Writers(service)
            await writers.create()
            writing = asyncio.create_task(writers.run(sys.maxsize))
            try:
                for system in KINDS:
                    await _advance(writers)
                    with stores.killed(system):
                        await eventually(partial(_refused, service, system))
                await _advance(writers)
            finally:
                writing.cancel()
            await asyncio.wait({writing})
            await eventually(partial(is_complete, service))
            values = await values_of(service)
            check(await feed_of(service), values)
            assert all(values[name] >= n for name, n in writers.acknowledged.items())
            assert not any("FeedGapFound" in line for line in service.output)


async def _advance(writers: Writers) -> None:
    """Wait until something more has been acknowledged of every class."""
    before = writers.by_class()

    async def beyond() -> bool:
        now = writers.by_class()
        return all(now[name] >= before[name] + 20 for name in CLASSES)

    await eventually(beyond)


async def _refused(service: Service, system: str) -> bool:
    """Whether the service has met the death of a store."""
    class_name = list(CLASSES)[list(KINDS).index(system)]
    with closing(Connection(service.data)) as http:
        return (await http.request("GET", f"/v1/shop/{class_name}/o0")).status == 503


@pytest.fixture
async def falling(
    data_dir: Path,
    redis_config: SystemConfig,
    postgresql_config: SystemConfig,
    mongodb_config: SystemConfig,
) -> AsyncIterator[tuple[Service, EmbeddedRedis]]:
    """A service whose coordination Redis, and only that one, can be restored to an older state."""
    server = EmbeddedRedis(data_dir / "coordination", "second")
    endpoint = await asyncio.to_thread(server.start)
    configs = (redis_config, postgresql_config, mongodb_config)
    async with (
        scratch_catalogue(postgresql_config) as catalogue,
        scratch_systems(*configs) as scratch,
        Service.on(scratch, catalogue, endpoint.url).running() as service,
    ):
        await service.favour()
        await service.put_schema("shop", CLASSES)
        yield service, server
    await asyncio.to_thread(server.stop)


@pytest.mark.timeout(300)
async def test_a_redis_restored_to_an_older_state_gets_all_changes_again(
    falling: tuple[Service, EmbeddedRedis], data_dir: Path
) -> None:
    service, server = falling
    writers = Writers(service)
    await writers.create()
    await writers.run(100)
    await eventually(partial(is_complete, service))
    home, older = data_dir / "coordination", data_dir / "older"
    await asyncio.to_thread(server.stop)
    shutil.copytree(home, older)
    await asyncio.to_thread(server.start)
    await writers.run(200)
    await eventually(partial(is_complete, service))
    reached = await position_of(service) or ""
    await asyncio.to_thread(server.stop)
    shutil.rmtree(home)
    shutil.move(older, home)
    await asyncio.to_thread(server.start)
    await writers.run(50)
    await eventually(partial(is_complete, service))
    check(await feed_of(service), await values_of(service))
    assert await position_of(service, reached) is None, "a follower may miss what came again"
    assert any("FeedRollbackFound" in line for line in service.output)
    assert not any("FeedGapFound" in line for line in service.output)
