"""SIGKILL of the catalogue's server after coordinators of blind puts were killed: nothing is torn.

Log entries not yet on the disk are lost, together with the coordinators that knew them.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from mediator.base.errors import Unavailable
from mediator.embedded.postgresql import EmbeddedPostgres
from mediator.model.operations import Put
from mediator.stores.port import SystemConfig
from tests.faults.conditions import eventually
from tests.faults.stores import Stores
from tests.faults.writes.split_objects import NEW, OLD, SPLIT
from tests.process.service import Service, scratch_systems, service, unique
from tests.process.transactions.crashable import CrashPoint, make_crashable
from tests.process.transactions.joint.pairs import attempt
from tests.process.transactions.open_writes import expire, meet, open_writes

STEPS = 8
"""A blind put over three systems takes seven."""

ROUNDS = 10
"""Other statements make the server flush its log, so not every kill loses entries."""


class CatalogueServer:
    """A PostgreSQL server that delays asynchronous writes of its log."""

    def __init__(self, directory: Path) -> None:
        self._processes = Stores(directory)
        self._server = EmbeddedPostgres(directory / "postgresql", "full")

    def start(self) -> str:
        return self._server.start().url

    async def delay_wal(self, url: str) -> None:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
            await connection.execute("SELECT pg_reload_conf()")
        finally:
            await connection.close()

    def crash(self) -> None:
        """Kill all processes of the server and restart it."""
        self._processes.kill("postgres")
        self._server.start()

    def end(self) -> None:
        self._server.stop()


@pytest.fixture
def server() -> Iterator[CatalogueServer]:
    directory = Path(tempfile.mkdtemp(prefix="portolan-catalogue-"))
    catalogue_server = CatalogueServer(directory)
    try:
        yield catalogue_server
    finally:
        catalogue_server.end()
        shutil.rmtree(directory)


@pytest.fixture
async def replica(
    server: CatalogueServer,
    redis_config: SystemConfig,
    postgresql_config: SystemConfig,
    mongodb_config: SystemConfig,
) -> AsyncIterator[Service]:
    url = server.start()
    await server.delay_wal(url)
    async with (
        scratch_systems(redis_config, postgresql_config, mongodb_config) as systems,
        service(systems, url) as running,
    ):
        await running.favour()
        yield running


async def _is_up(replica: Service) -> bool:
    try:
        await open_writes(replica)
    except Unavailable:
        return False
    return True


async def test_no_put_is_torn_whatever_the_catalogue_loses(
    server: CatalogueServer, replica: Service
) -> None:
    database = await replica.put_schema({"split": SPLIT})
    lost_count = 0
    for _ in range(ROUNDS):
        puts = [Put(database, "split", unique(), unique(), values=NEW) for _ in range(2 * STEPS)]
        for put in puts:
            await replica.create(database, "split", put.id, **OLD)
        with pytest.MonkeyPatch.context() as patch:
            make_crashable(replica.mediator, patch)
            acknowledged = [
                await attempt(replica, put, CrashPoint(index // 2, bool(index % 2)))
                for index, put in enumerate(puts)
            ]
        open_count = len(await open_writes(replica))
        server.crash()
        await eventually(lambda: _is_up(replica))
        lost_count += open_count - len(await open_writes(replica))
        for put, is_acknowledged in zip(puts, acknowledged, strict=True):
            await meet(replica, put)
            outcome = await replica.get(database, "split", put.id)
            assert not outcome.partial
            assert outcome.values == NEW or (outcome.values == OLD and not is_acknowledged)
        await expire(replica)
        if lost_count:
            break
    assert lost_count
