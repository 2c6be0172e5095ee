"""Systems that move while in use: no request fails, and the old address is released."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest
from pydantic import SecretStr
from redis.asyncio import Redis

from app.service.container import build
from app.settings.main import HttpSettings, MediatorSettings, MissingSetting
from app.settings.systems_file import SystemsFile, read_systems
from mediator.base.errors import Conflict, Unavailable
from mediator.control import opening
from mediator.control.known_systems import known_from
from mediator.control.port import SystemRegistration
from mediator.service import Mediator
from mediator.stores.port import SystemConfig
from tests.faults.conditions import eventually
from tests.faults.service import Service as Process
from tests.process.access.examinations import recall
from tests.process.control.closed_stores import ClosedStores
from tests.process.service import (
    NOWHERE,
    Service,
    field_on,
    inc,
    scratch_catalogue,
    service,
    unique,
)


def as_user(config: SystemConfig, user: str, password: str) -> SystemConfig:
    """Return how to reach a Redis as a user."""
    url = urlsplit(config.url)
    if url.scheme == "unix":
        return replace(config, url=f"unix://{user}:{password}@{url.path}?{url.query}")
    address = url.netloc.rpartition("@")[2]
    return replace(config, url=f"redis://{user}:{password}@{address}{url.path}")


@pytest.fixture
async def admin(redis_config: SystemConfig) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_config.url) as client:
        yield client


@pytest.fixture
async def first(mediator: Service, admin: Redis) -> AsyncIterator[SystemConfig]:
    """A Redis, reached as a separate user."""
    user = unique("u")
    await acl(admin, "SETUSER", user, "on", ">one", "~*", "&*", "+@all")
    yield as_user(mediator.configs["redis"], user, "one")
    await acl(admin, "DELUSER", user)


@pytest.fixture
async def running(
    mediator: Service, first: SystemConfig, postgresql_config: SystemConfig
) -> AsyncIterator[Service]:
    async with scratch_catalogue(postgresql_config) as url:
        configs = [first, mediator.configs["postgres"], mediator.configs["mongo"]]
        async with service(configs, url) as instance:
            await instance.favour()
            yield instance


def user_of(config: SystemConfig) -> str:
    return urlsplit(config.url).username or ""


async def acl(admin: Any, *arguments: str) -> None:
    await admin.execute_command("ACL", *arguments)


async def connections_of(admin: Redis, user: str) -> int:
    return sum(client["user"] == user for client in await admin.client_list())


async def test_a_system_moves_and_no_request_fails(
    running: Service, first: SystemConfig, admin: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "BEFORE_S", 1.0)
    database = await running.put_schema(
        {"things": {"fields": {"hits": field_on("redis", "integer")}}}
    )
    for id_ in "abcd":
        await running.create(database, "things", id_, hits=0)
    ended = asyncio.Event()
    written = dict.fromkeys("abcd", 0)

    async def write(id_: str) -> None:
        while not ended.is_set():
            await running.mediator.data.write(inc(database, "things", id_))
            written[id_] += 1
            assert (await running.get(database, "things", id_)).values == {"hits": written[id_]}

    old, second = user_of(first), unique("u")
    await acl(admin, "SETUSER", second, "on", ">two", "~*", "&*", "+@all")
    async with asyncio.TaskGroup() as tasks:
        for id_ in "abcd":
            tasks.create_task(write(id_))

        async def is_unused(user: str) -> bool:
            return await connections_of(admin, user) == 0

        assert not await is_unused(old)
        registrations = [SystemRegistration(as_user(first, second, "two"))]
        assert await running.mediator.registry.reconfigure(registrations) == ["redis"]
        assert await running.mediator.registry.reconfigure(registrations) == []
        assert not await is_unused(second)
        await eventually(lambda: is_unused(old))
        before = sum(written.values())

        async def has_progressed() -> bool:
            return sum(written.values()) > before + 20

        await eventually(has_progressed)
        ended.set()
    await acl(admin, "DELUSER", second)
    systems = str(await running.mediator.control.systems())
    assert "two" not in systems.split()
    assert second not in systems


async def test_an_address_that_does_not_answer_changes_nothing(
    running: Service, first: SystemConfig
) -> None:
    store = running.mediator.systems.get("redis").store
    with pytest.raises(Unavailable) as caught:
        await running.mediator.registry.reconfigure(
            [SystemRegistration(replace(first, url=NOWHERE))]
        )
    assert "hush" not in str(caught.value)
    for other in (replace(first, namespace="elsewhere"), replace(first, kind="postgresql")):
        with pytest.raises(Conflict):
            await running.mediator.registry.reconfigure([SystemRegistration(other)])
    assert running.mediator.systems.get("redis").store is store
    partitions = replace(first, partitions=first.partitions + 1)
    assert await running.mediator.registry.reconfigure([SystemRegistration(partitions)]) == []


async def test_refused_settings_of_a_system_that_is_down_are_not_applied_on_its_return(
    running: Service, first: SystemConfig
) -> None:
    server = ClosedStores("redis")
    configs = [first, *(config for config in running.configs.values() if config.name != "redis")]
    async with service(configs, running.catalogue_url, factory=server) as other:
        registry = other.mediator.registry
        refused = SystemRegistration(replace(first, namespace="elsewhere"), ("elasticity",))
        with pytest.raises(Conflict, match="another kind or namespace"):
            await registry.reconfigure([refused])
        unreachable = SystemRegistration(replace(first, url=NOWHERE))
        with pytest.raises(Unavailable):
            await registry.reconfigure([unreachable])
        server.opens = True
        await registry.reconnect()
        assert other.mediator.systems.get("redis").store.config == first
    stored = {row.name: known_from(row) for row in await running.mediator.registrations.load()}
    assert stored["redis"].registration.config == first
    assert "elasticity" not in stored["redis"].registration.declared


@pytest.mark.parametrize("change", [{"namespace": "elsewhere"}, {"kind": "mongodb"}])
async def test_no_service_starts_with_a_system_of_another_kind_or_namespace(
    running: Service, first: SystemConfig, change: dict[str, str]
) -> None:
    other = replace(first, **change)  # type: ignore[arg-type]  # strings only
    with pytest.raises(Conflict, match="redis cannot become one of another kind or namespace"):
        async with service([other], running.catalogue_url):
            pass


async def test_a_replica_follows_a_change_in_the_catalogue(
    running: Service, mediator: Service, first: SystemConfig
) -> None:
    async with service([], running.catalogue_url) as other:
        old = other.mediator.systems.get("redis").store
        changed = SystemRegistration(replace(first, deadline_s=first.deadline_s + 1))
        await running.mediator.registry.reconfigure([changed])

        async def follows() -> bool:
            return other.mediator.systems.get("redis").store.config == changed.config

        await eventually(follows)
        assert other.mediator.systems.get("redis").store is not old


async def test_a_signal_reloads_the_systems_file(
    mediator: Service,
    first: SystemConfig,
    admin: Redis,
    postgresql_config: SystemConfig,
    tmp_path: Path,
) -> None:
    second, path = unique("u"), tmp_path / "systems.json"
    await acl(admin, "SETUSER", second, "on", ">two", "~*", "&*", "+@all")
    async with scratch_catalogue(postgresql_config) as url:
        write_file(path, first)
        await recall([first], url)
        process = Process.on(
            [], url, first.url, systems_file=str(path), sketch="off", relays="here"
        )
        async with process.running():
            write_file(path, as_user(first, second, "two"))
            os.kill(process.pid, signal.SIGHUP)

            async def has_moved() -> bool:
                return await connections_of(admin, second) > 0

            await eventually(has_moved)
            os.kill(process.pid, 0)
    await acl(admin, "DELUSER", second)


async def test_an_edit_during_a_start_is_applied(
    first: SystemConfig,
    admin: Redis,
    postgresql_config: SystemConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    second, path = unique("u"), tmp_path / "systems.json"
    await acl(admin, "SETUSER", second, "on", ">two", "~*", "&*", "+@all")
    moved, start = as_user(first, second, "two"), Mediator.start

    async def start_then_edit(mediator: Mediator) -> None:
        await start(mediator)
        write_file(path, moved)

    monkeypatch.setattr(Mediator, "start", start_then_edit)
    async with scratch_catalogue(postgresql_config) as url:
        write_file(path, first)
        await recall([first], url)
        settings = MediatorSettings(catalogue_url=SecretStr(url), relays="here", systems_file=path)
        container = await build(HttpSettings(), settings)
        try:
            await container.reread()
            assert container.mediator.systems.get("redis").store.config.url == moved.url
        finally:
            await container.stop()
    await acl(admin, "DELUSER", second)


def write_file(path: Path, config: SystemConfig) -> None:
    system = {"name": "redis", "kind": "redis", "namespace": config.namespace}
    path.write_bytes(text_of({**system, "url": config.url}))


def text_of(*systems: dict[str, str]) -> bytes:
    return orjson.dumps(list(systems))


SYSTEM = {"name": "redis", "kind": "redis", "url": "redis://:hush@x/0"}


@pytest.mark.parametrize("text", [b"", b"{}", b'[{"name": "a"}]', b"[" * 5000, b'["hush"]'])
def test_an_invalid_systems_file_is_refused_without_its_content(
    text: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "systems.json"
    with pytest.raises(MissingSetting, match="No such file"):
        read_systems(path)
    path.write_bytes(text)
    with pytest.raises(MissingSetting, match="PORTOLAN_SYSTEMS_FILE") as caught:
        read_systems(path)
    assert "hush" not in str(caught.value)


async def test_a_changed_file_is_applied_until_that_succeeds(
    tmp_path: Path,
) -> None:
    path, applied, failures = tmp_path / "systems.json", list[str](), [True]

    async def apply(systems: object) -> list[str]:
        if failures:
            failures.pop()
            raise Unavailable("It does not answer.", system="redis")
        assert isinstance(systems, list)
        applied.append(systems[0].config.url)
        return ["redis"]

    path.write_bytes(text_of(SYSTEM))
    file = SystemsFile(path, apply)
    failures.clear()
    for _ in range(2):
        await file.apply_changes()
    assert applied == [SYSTEM["url"]]
    failures.append(True)
    path.write_bytes(b"half a fi")
    await file.apply_changes()
    path.write_bytes(text_of({**SYSTEM, "url": "redis://y/0"}))
    for _ in range(3):
        await file.apply_changes()
    assert applied == [SYSTEM["url"], "redis://y/0"]
