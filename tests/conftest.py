"""Real servers for the tests: three embedded stores, started once for the whole run.

Each process of the run (``-n``) has its own; what they write is in memory where there is room.

``PORTOLAN_TEST_REDIS_URL``, ``PORTOLAN_TEST_POSTGRESQL_URL`` and ``PORTOLAN_TEST_MONGODB_URL`` name
servers that are running already; otherwise the embedded ones are started in a scratch directory.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import settings

from app.service.interpreter import spare_the_collector
from mediator.catalogue import connection as catalogue_connection
from mediator.control import plane
from mediator.embedded.fleet import EmbeddedFleet
from mediator.embedded.port import Kind
from mediator.stores import probe
from mediator.stores.port import SystemConfig
from redis_connection import connection as redis_connection
from tests.java import QUICK_JAVA, submit_options
from tests.process.access.examinations import share
from tests.process.service import drop_catalogue_template

# How long an example takes depends on the machine: no test asserts a time. And a run that failed
# must fail again: examples are the same every time, unless `--hypothesis-profile explore` asks.
settings.register_profile("explore", deadline=None)
settings.register_profile("portolan", deadline=None, derandomize=True)
settings.load_profile("portolan")

# Shells let what they start in the background ignore SIGINT, and so would all that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("SPARK_SUBMIT_OPTS", submit_options())

MEMORY, ROOM_BYTES = Path("/dev/shm"), 6 << 30
"""A file system in memory, and the room that a run may need there."""

STORE_DEADLINE_S, CATALOGUE_DEADLINE_S = 10.0, 20.0
"""A machine that does something else for seconds is no fault of a server."""

PROBE_BUDGET_S = 60.0
"""For examining a server, of which all tests of the run believe what was found out."""

catalogue_connection.DEADLINE_S = CATALOGUE_DEADLINE_S
redis_connection.TIMEOUT_S = STORE_DEADLINE_S
plane.PING_S = STORE_DEADLINE_S
probe.BUDGET_S = PROBE_BUDGET_S

WAITING, WAITED = [Path(__file__).parent / each for each in ("faults", "proxies")], 0.6
"""Folders of tests that mostly wait, and by which part of the other modules they have begun."""

KINDS: tuple[Kind, ...] = ("redis", "postgresql", "mongodb")


def _variable(kind: str) -> str:
    return f"PORTOLAN_TEST_{kind.upper()}_URL"


def pytest_configure() -> None:
    """Keep scratch files in memory: the disk of a shared machine may stand still for seconds.

    Servers write and flush as ever; what tests kill is a process, not the machine. Nothing that is
    imported to collect tests is garbage, and to look for some takes a sixth of the time.
    """
    gc.disable()
    if "TMPDIR" not in os.environ and _has_room(MEMORY):
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


def pytest_collection_finish() -> None:
    """Exempt what importing all tests has made from garbage collection, and have fewer of them.

    This is what a service does; else each collection walks it.
    """
    spare_the_collector()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread the modules that mostly wait over the others, so that no core is idle meanwhile."""
    modules = list(dict.fromkeys(item.path for item in items))
    waiting = [each for each in modules if any(map(each.is_relative_to, WAITING))]
    busy = [each for each in modules if each not in waiting]
    turn = {module: number / len(busy) for number, module in enumerate(busy)}
    turn |= {module: WAITED * number / len(waiting) for number, module in enumerate(waiting)}
    items.sort(key=lambda item: turn[item.path])


def _has_room(directory: Path) -> bool:
    return os.access(directory, os.W_OK) and shutil.disk_usage(directory).free > ROOM_BYTES


@pytest.fixture(scope="module", autouse=True)
def _unclosed_is_found_where_it_was_opened() -> Iterator[None]:
    """Collect garbage after each module, so that its warnings fail this module and no later one.

    What is left belongs to the run, and no later collection walks it.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def server_urls(
    tmp_path_factory: pytest.TempPathFactory, worker_id: str
) -> Iterator[Mapping[str, str]]:
    """URLs of one running server of each kind."""
    own = tmp_path_factory.getbasetemp()
    of_the_run = own if worker_id == "master" else own.parent
    given: dict[str, str] = {
        kind: os.environ.get(f"PORTOLAN_TEST_{kind.upper()}_URL", "") for kind in KINDS
    }
    if all(given.values()):
        yield given
        return
    data_dir = Path(tempfile.mkdtemp(prefix="portolan-test-"))
    try:
        with EmbeddedFleet(data_dir, java_options=QUICK_JAVA) as fleet:
            endpoints = fleet.endpoints
            share(of_the_run, [endpoint.url for endpoint in endpoints.values()])
            yield {kind: given[kind] or endpoints[kind].url for kind in KINDS}
    finally:
        shutil.rmtree(data_dir, ignore_errors=True)


@pytest.fixture(scope="session")
def redis_config(server_urls: Mapping[str, str]) -> SystemConfig:
    """How to reach the Redis server."""
    return _system("redis", "redis", server_urls)


@pytest.fixture(scope="session")
async def postgresql_config(server_urls: Mapping[str, str]) -> AsyncIterator[SystemConfig]:
    """How to reach the PostgreSQL server."""
    config = _system("postgres", "postgresql", server_urls)
    yield config
    await drop_catalogue_template(config)


@pytest.fixture(scope="session")
def mongodb_config(server_urls: Mapping[str, str]) -> SystemConfig:
    """How to reach the server that speaks MongoDB's protocol."""
    return _system("mongo", "mongodb", server_urls)


@pytest.fixture(scope="session")
def config_of(
    redis_config: SystemConfig, postgresql_config: SystemConfig, mongodb_config: SystemConfig
) -> Mapping[str, SystemConfig]:
    """How to reach each server, by its kind.

    An asynchronous fixture cannot request another one by name unless a test before has had it.
    """
    return {each.kind: each for each in (redis_config, postgresql_config, mongodb_config)}


def _system(name: str, kind: str, urls: Mapping[str, str]) -> SystemConfig:
    return SystemConfig(name=name, kind=kind, url=urls[kind], deadline_s=STORE_DEADLINE_S)
