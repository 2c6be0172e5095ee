"""Systems: registered, opened, probed, described and unregistered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from mediator.base.errors import (
    Conflict,
    NotFound,
    SchemaInvalid,
    Unavailable,
)
from mediator.control.known_systems import Findings
from mediator.control.opening import Opening
from mediator.control.port import SystemRegistration
from mediator.stores.kinds import make_store
from mediator.stores.port import Store, SystemConfig
from tests.conformance.racy import RacyStore
from tests.process.control.classes import class_on
from tests.process.control.closed_stores import ClosedStores
from tests.process.control.test_placing_anew import pause_at, wait_until_stopped
from tests.process.service import NOWHERE, Service, service, unique


async def test_a_system_is_registered_used_and_unregistered(
    mediator: Service, replica: Service, redis_config: SystemConfig
) -> None:
    control = mediator.mediator.control
    name = unique("redis2")[:30]
    config = replace(redis_config, name=name, namespace=mediator.configs["redis"].namespace + "b")
    results = await asyncio.gather(
        control.register(SystemRegistration(config, metrics={"write_throughput": 1e9})),
        control.register(SystemRegistration(config)),
        return_exceptions=True,
    )
    assert [type(result).__name__ for result in results] == ["dict", "Conflict"]
    described = await control.system(name)
    assert {"conditional_updates", "atomic_updates"} <= set(described["capabilities"])
    database = await mediator.put_schema({"notes": class_on("redis")})
    assert mediator.systems_of(database, "notes") == (name,)
    await replica.mediator.registry.reconnect()
    await replica.create(database, "notes", "x", title="t")
    with pytest.raises(Conflict) as caught:
        await control.unregister(name)
    assert caught.value.extra["classes"] == [f"{database}.notes"]
    await control.delete_schema(database)
    await control.unregister(name)
    await replica.mediator.registry.reconnect()
    for plane in (mediator, replica):
        with pytest.raises(NotFound):
            await plane.mediator.control.system(name)


@pytest.fixture
async def fast(mediator: Service, replica: Service, other: SystemConfig) -> dict[str, Any]:
    """Classes that both replicas place on a removable system."""
    stated = {"write_throughput": 1e9}
    await mediator.mediator.control.register(SystemRegistration(other, metrics=stated))
    await replica.mediator.registry.reconnect()
    return {"notes": class_on("redis")}


async def test_a_system_that_gets_a_class_while_it_is_removed_is_kept(
    mediator: Service,
    replica: Service,
    other: SystemConfig,
    fast: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    removal = pause_at(monkeypatch, mediator.mediator.registrations, "remove")
    removing = asyncio.create_task(mediator.mediator.control.unregister(other.name))
    await wait_until_stopped(removing, by=removal)
    database = await replica.put_schema(fast)
    await replica.create(database, "notes", "x", title="kept")
    assert replica.systems_of(database, "notes") == (other.name,)
    removal.open.set()
    with pytest.raises(Conflict) as refused:
        await removing
    assert refused.value.extra["classes"] == [f"{database}.notes"]
    for plane in (mediator, replica):
        await plane.mediator.registry.reconnect()
        assert await plane.values(database, "notes", "x") == {"title": "kept"}
    await mediator.mediator.control.delete_schema(database)


async def test_a_class_whose_system_is_removed_meanwhile_is_refused(
    mediator: Service,
    replica: Service,
    other: SystemConfig,
    fast: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put = pause_at(monkeypatch, replica.mediator.stored_schemas, "put")
    setting = asyncio.create_task(replica.put_schema(fast))
    await wait_until_stopped(setting, by=put)
    await mediator.mediator.control.unregister(other.name)
    put.open.set()
    with pytest.raises(Conflict, match=f"system {other.name} was removed meanwhile"):
        await setting
    await replica.mediator.registry.reconnect()
    database = await replica.put_schema(fast)
    assert replica.systems_of(database, "notes") == ("redis",)


async def test_systems_keep_the_order_of_the_settings(mediator: Service) -> None:
    stored = await mediator.mediator.registrations.load()
    assert [system.name for system in stored][: len(mediator.configs)] == list(mediator.configs)


async def test_metrics_stated_at_another_replica_are_kept(
    mediator: Service, replica: Service
) -> None:
    """Neither replica has read the other's registration."""
    before = (await mediator.mediator.control.system("redis"))["stated_metrics"]
    await replica.mediator.registry.reconnect()
    await mediator.mediator.control.amend("redis", metrics={"write_latency": 0.125})
    await replica.mediator.control.amend("redis", metrics={"read_availability": 0.5})
    stated = []
    for plane in (mediator, replica):
        await plane.mediator.registry.reconnect()
        stated.append((await plane.mediator.control.system("redis"))["stated_metrics"])
    changed = {name: before.get(name) for name in ("write_latency", "read_availability")}
    await mediator.mediator.control.amend("redis", metrics=changed)
    assert stated == [{**before, "write_latency": 0.125, "read_availability": 0.5}] * 2


async def test_a_system_that_cannot_be_reached_is_refused_without_its_password(
    mediator: Service, caplog: pytest.LogCaptureFixture
) -> None:
    urls = {
        "redis": NOWHERE,
        "postgresql": "postgresql://me:hush-hush@127.0.0.1:1/x",
        "mongodb": "mongodb://me:hush-hush@127.0.0.1:1/?serverSelectionTimeoutMS=100",
    }
    for kind, url in urls.items():
        config = SystemConfig(unique("far"), kind, url, deadline_s=1.0)
        with pytest.raises(Unavailable) as caught:
            await mediator.mediator.control.register(SystemRegistration(config))
        printed = f"{caught.value} {caught.value.extra} {config!r} {caplog.text}"
        assert "hush-hush" not in printed
        with pytest.raises(NotFound):
            await mediator.mediator.control.system(config.name)


@pytest.mark.parametrize("url", ["what:hush-hush@", "redis://u:hush-hush@[::1", "", "::hush-hush"])
@pytest.mark.parametrize("kind", ["redis", "postgresql", "mongodb", "oracle"])
async def test_an_invalid_url_is_refused_without_revealing_it(
    mediator: Service, kind: str, url: str
) -> None:
    registration = SystemRegistration(SystemConfig(unique("odd"), kind, url, deadline_s=1.0))
    with pytest.raises((Unavailable, Conflict, SchemaInvalid.__bases__[0])) as caught:
        await mediator.mediator.control.register(registration)
    assert "hush-hush" not in f"{caught.value} {caught.value.extra} {caught.value.locations}"


async def test_a_system_that_is_down_at_the_start_is_opened_later(
    mediator: Service, system_configs: Sequence[SystemConfig]
) -> None:
    name = await mediator.put_schema({"near": class_on("postgres"), "far": class_on("redis")})
    server = ClosedStores("redis")
    async with service(system_configs, mediator.catalogue_url, factory=server) as late:
        await late.create(name, "near", "x", title="t")
        with pytest.raises(Unavailable):
            await late.create(name, "far", "x", title="t")
        readiness = await late.mediator.control.readiness()
        assert (readiness["ready"], readiness["degraded"]) == (True, ["redis"])
        assert f"{name}.far" in readiness["systems"]["redis"]["serves"]
        assert await late.mediator.control.schema(name)
        server.opens = True
        await late.mediator.registry.reconnect()
        await late.create(name, "far", "x", title="t")
        assert (await late.mediator.control.readiness())["degraded"] == []


class SlowStore:
    """A store whose opening a test can delay; `open_` tells whether it is open."""

    def __init__(self, store: Store, resume: asyncio.Event) -> None:
        self._store = store
        self._resume = resume
        self.open_ = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def open(self) -> None:
        await self._resume.wait()
        await self._store.open()
        self.open_ = True

    async def close(self) -> None:
        await self._store.close()
        self.open_ = False


@dataclass
class SlowStores:
    """A store factory; stores of one system open only once `resume` is set."""

    name: str
    opening: asyncio.Event = field(default_factory=asyncio.Event)
    resume: asyncio.Event = field(default_factory=asyncio.Event)
    stores: list[SlowStore] = field(default_factory=list)

    def __call__(self, config: SystemConfig) -> Store:
        store: Any = make_store(config)
        if config.name == self.name:
            store = SlowStore(store, self.resume)
            self.stores.append(store)
            self.opening.set()
        typed: Store = store
        return typed


@pytest.fixture
async def other(
    mediator: Service, redis_config: SystemConfig, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[SystemConfig]:
    """A system for the other replica to register; its server is not probed."""
    [findings] = [
        system.findings for system in mediator.mediator.registry if system.name == "redis"
    ]

    async def return_findings(*_: object) -> Findings | None:
        return findings

    monkeypatch.setattr(Opening, "examine", return_findings)
    namespace = mediator.configs["redis"].namespace + "c"
    config = replace(redis_config, name=unique("other")[:30], namespace=namespace)
    yield config
    for description in await mediator.mediator.control.systems():
        if description["name"] == config.name:
            await mediator.mediator.control.unregister(config.name)


async def test_concurrent_reconnections_open_one_store(
    mediator: Service, system_configs: Sequence[SystemConfig], other: SystemConfig
) -> None:
    """The periodic task can reconnect while the settings are being registered."""
    factory = SlowStores(other.name)
    async with service(system_configs, mediator.catalogue_url, factory=factory) as late:
        await mediator.mediator.control.register(SystemRegistration(other))
        registry = late.mediator.registry
        reconnections = [asyncio.create_task(registry.reconnect()) for _ in range(2)]
        await factory.opening.wait()
        factory.resume.set()
        await asyncio.gather(*reconnections)
        assert [store.open_ for store in factory.stores] == [True]
    assert not factory.stores[0].open_


async def test_a_system_unregistered_while_it_is_opened_stays_unregistered(
    mediator: Service, system_configs: Sequence[SystemConfig], other: SystemConfig
) -> None:
    factory = SlowStores(other.name)
    control = mediator.mediator.control
    async with service(system_configs, mediator.catalogue_url, factory=factory) as late:
        await control.register(SystemRegistration(other))
        opening = asyncio.create_task(late.mediator.registry.reconnect())
        await factory.opening.wait()
        await control.unregister(other.name)
        factory.resume.set()
        await opening
        assert [store.open_ for store in factory.stores] == [False]
        with pytest.raises(Unavailable):
            late.mediator.systems.get(other.name)
        await late.mediator.registry.reconnect()
        for plane in (mediator, late):
            assert other.name not in {s["name"] for s in await plane.mediator.control.systems()}


async def test_of_two_replicas_that_register_a_name_one_is_refused(
    mediator: Service, system_configs: Sequence[SystemConfig], other: SystemConfig
) -> None:
    factory = SlowStores(other.name)
    async with service(system_configs, mediator.catalogue_url, factory=factory) as late:
        registrations = [
            asyncio.create_task(late.mediator.control.register(SystemRegistration(other))),
            asyncio.create_task(mediator.mediator.control.register(SystemRegistration(other))),
        ]
        await registrations[1]
        factory.resume.set()
        with pytest.raises(Conflict, match="There is a system"):
            await registrations[0]
        # The periodic task can have opened the other's store meanwhile.
        assert not factory.stores[0].open_


async def test_a_store_whose_conditional_writes_race_is_refused(
    mediator: Service, system_configs: Sequence[SystemConfig]
) -> None:
    def factory(config: SystemConfig) -> Store:
        store = make_store(config)
        racy: Any = RacyStore(store)
        return racy if config.name == "racy" else store

    async with service(system_configs, mediator.catalogue_url, factory=factory) as instance:
        config = replace(instance.configs["redis"], name="racy")
        with pytest.raises(Conflict, match="cannot hold data"):
            await instance.mediator.control.register(SystemRegistration(config))
        with pytest.raises(NotFound):
            await instance.mediator.control.system("racy")
