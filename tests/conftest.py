"""Real servers for the tests: three embedded stores, started once per test run.

Each process of the run (``-n``) starts its own; their data is in memory if there is room.

``PORTOLAN_TEST_REDIS_URL``, ``PORTOLAN_TEST_POSTGRESQL_URL`` and ``PORTOLAN_TEST_MONGODB_URL`` name
running servers to use instead; the embedded ones are started in a scratch directory.
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

# How long an example takes depends on the machine: no test asserts a time. A failed run must fail
# again, so examples are the same every time, except with `--hypothesis-profile explore`.
settings.register_profile("explore", deadline=None)
settings.register_profile("portolan", deadline=None, derandomize=True)
settings.load_profile("portolan")

# Shells make background processes ignore SIGINT, and all processes of a test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("SPARK_SUBMIT_OPTS", submit_options())

MEMORY, MIN_FREE_BYTES = Path("/dev/shm"), 6 << 30
"""A file system in memory, and the free space that a run can need there."""

STORE_DEADLINE_S, CATALOGUE_DEADLINE_S = 10.0, 20.0
"""Long enough for a machine that is busy for seconds, which is not a fault of the server."""

PROBE_BUDGET_S = 60.0
"""The budget for probing a server, whose result all tests of the run use."""

catalogue_connection.DEADLINE_S = CATALOGUE_DEADLINE_S
redis_connection.TIMEOUT_S = STORE_DEADLINE_S
plane.PING_S = STORE_DEADLINE_S
probe.BUDGET_S = PROBE_BUDGET_S

WAITING_DIRS, WAITING_SHARE = [Path(__file__).parent / name for name in ("faults", "proxies")], 0.6
"""Folders of tests that mostly wait, and the share of other modules over which to spread them."""

KINDS: tuple[Kind, ...] = ("redis", "postgresql", "mongodb")


def _variable(kind: str) -> str:
    return f"PORTOLAN_TEST_{kind.upper()}_URL"


def pytest_configure() -> None:
    """Keep scratch files in memory: the disk of a shared machine can stall for seconds.

    Servers write and flush as usual; tests kill processes, not the machine. Imports for collecting
    tests leave no garbage, and looking for it would take a sixth of the time.
    """
    gc.disable()
    if "TMPDIR" not in os.environ and _has_room(MEMORY):
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


def pytest_collection_finish() -> None:
    """Exempt imported objects from garbage collection, and collect less often, as a service does.

    Otherwise each collection would traverse them.
    """
    spare_the_collector()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread the modules that mostly wait over the others, so that no core is idle."""
    modules = list(dict.fromkeys(item.path for item in items))
    waiting = [module for module in modules if any(map(module.is_relative_to, WAITING_DIRS))]
    busy = [module for module in modules if module not in waiting]
    position = {module: number / len(busy) for number, module in enumerate(busy)}
    position |= {
        module: WAITING_SHARE * number / len(waiting) for number, module in enumerate(waiting)
    }
    items.sort(key=lambda item: position[item.path])


def _has_room(directory: Path) -> bool:
    return os.access(directory, os.W_OK) and shutil.disk_usage(directory).free > MIN_FREE_BYTES


@pytest.fixture(scope="module", autouse=True)
def _unclosed_is_found_where_it_was_opened() -> Iterator[None]:
    """Collect garbage after each module, so that its warnings fail this module and no later one.

    The remaining objects belong to the run; later collections skip them.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def server_urls(
    tmp_path_factory: pytest.TempPathFactory, worker_id: str
) -> Iterator[Mapping[str, str]]:
    """URLs of one running server of each kind."""
    worker_dir = tmp_path_factory.getbasetemp()
    run_dir = worker_dir if worker_id == "master" else worker_dir.parent
    given_urls: dict[str, str] = {
        kind: os.environ.get(f"PORTOLAN_TEST_{kind.upper()}_URL", "") for kind in KINDS
    }
    if all(given_urls.values()):
        yield given_urls
        return
    data_dir = Path(tempfile.mkdtemp(prefix="portolan-test-"))
    try:
        with EmbeddedFleet(data_dir, java_options=QUICK_JAVA) as fleet:
            endpoints = fleet.endpoints
            share(run_dir, [endpoint.url for endpoint in endpoints.values()])
            yield {kind: given_urls[kind] or endpoints[kind].url for kind in KINDS}
    finally:
        shutil.rmtree(data_dir, ignore_errors=True)


@pytest.fixture(scope="session")
def redis_config(server_urls: Mapping[str, str]) -> SystemConfig:
    """The config of the Redis server."""
    return _system("redis", "redis", server_urls)


@pytest.fixture(scope="session")
async def postgresql_config(server_urls: Mapping[str, str]) -> AsyncIterator[SystemConfig]:
    """The config of the PostgreSQL server."""
    config = _system("postgres", "postgresql", server_urls)
    yield config
    await drop_catalogue_template(config)


@pytest.fixture(scope="session")
def mongodb_config(server_urls: Mapping[str, str]) -> SystemConfig:
    """The config of the server that speaks MongoDB's protocol."""
    return _system("mongo", "mongodb", server_urls)


@pytest.fixture(scope="session")
def config_of(
    redis_config: SystemConfig, postgresql_config: SystemConfig, mongodb_config: SystemConfig
) -> Mapping[str, SystemConfig]:
    """The config of each server, by kind.

    An asynchronous fixture can request another by name only if an earlier test has used it.
    """
    return {config.kind: config for config in (redis_config, postgresql_config, mongodb_config)}


def _system(name: str, kind: str, urls: Mapping[str, str]) -> SystemConfig:
    return SystemConfig(name=name, kind=kind, url=urls[kind], deadline_s=STORE_DEADLINE_S)
