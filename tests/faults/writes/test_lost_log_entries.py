"""SIGKILL of the catalogue's server when coordinators of blind puts have died: nothing is torn.

What the log does not write to the disk at once is gone then, with the coordinators that knew of it.
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
"""Other statements make the server write everything to the disk, so not each kill loses entries."""


class CatalogueServer:
    """A server of PostgreSQL that writes late what does not have to be on the disk."""

    def __init__(self, directory: Path) -> None:
        self._processes = Stores(directory)
        self._server = EmbeddedPostgres(directory / "postgresql", "full")

    def start(self) -> str:
        return self._server.start().url

    async def write_late(self, url: str) -> None:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
            await connection.execute("SELECT pg_reload_conf()")
        finally:
            await connection.close()

    def crash(self) -> None:
        """Kill it and all that it runs, and start it again."""
        self._processes.kill("postgres")
        self._server.start()

    def end(self) -> None:
        self._server.stop()


@pytest.fixture
def server() -> Iterator[CatalogueServer]:
    directory = Path(tempfile.mkdtemp(prefix="portolan-catalogue-"))
    own = CatalogueServer(directory)
    try:
        yield own
    finally:
        own.end()
        shutil.rmtree(directory)


@pytest.fixture
async def replica(
    server: CatalogueServer,
    redis_config: SystemConfig,
    postgresql_config: SystemConfig,
    mongodb_config: SystemConfig,
) -> AsyncIterator[Service]:
    url = server.start()
    await server.write_late(url)
    async with (
        scratch_systems(redis_config, postgresql_config, mongodb_config) as systems,
        service(systems, url) as running,
    ):
        await running.favour()
        yield running


async def _answers(replica: Service) -> bool:
    try:
        await open_writes(replica)
    except Unavailable:
        return False
    return True


async def test_no_put_is_torn_whatever_the_catalogue_loses(
    server: CatalogueServer, replica: Service
) -> None:
    database = await replica.put_schema({"split": SPLIT})
    lost = 0
    for _ in range(ROUNDS):
        puts = [Put(database, "split", unique(), unique(), values=NEW) for _ in range(2 * STEPS)]
        for put in puts:
            await replica.create(database, "split", put.id, **OLD)
        with pytest.MonkeyPatch.context() as patched:
            make_crashable(replica.mediator, patched)
            acknowledged = [
                await attempt(replica, put, CrashPoint(at // 2, bool(at % 2)))
                for at, put in enumerate(puts)
            ]
        known = len(await open_writes(replica))
        server.crash()
        await eventually(lambda: _answers(replica))
        lost += known - len(await open_writes(replica))
        for put, is_acknowledged in zip(puts, acknowledged, strict=True):
            await meet(replica, put)
            found = await replica.get(database, "split", put.id)
            assert not found.partial
            assert found.values == NEW or (found.values == OLD and not is_acknowledged)
        await expire(replica)
        if lost:
            break
    assert lost
