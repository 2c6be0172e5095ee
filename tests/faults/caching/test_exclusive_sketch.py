"""A sketch in memory misses the writes of other replicas, so it allows only one replica."""

from __future__ import annotations

from functools import partial

import asyncpg
import pytest

from mediator.catalogue.connection import Catalogue
from mediator.catalogue.replicas import NotAlone, Presence
from mediator.stores.port import SystemConfig
from tests.faults.conditions import eventually
from tests.faults.service import Service
from tests.process.service import scratch_catalogue

REMEDY = "PORTOLAN_SKETCH=redis"


@pytest.mark.parametrize(("first", "second"), [("memory", "off"), ("off", "memory")])
async def test_a_second_replica_refuses_to_start_and_names_the_remedy(
    postgresql_config: SystemConfig, first: str, second: str
) -> None:
    async with (
        scratch_catalogue(postgresql_config) as url,
        Service.on([], url, sketch=first).running() as running,
    ):
        other = Service.on([], url, sketch=second)
        with pytest.raises(AssertionError, match="ended at its start"):
            await other.start()
        output = " ".join("".join(other.output).split())
        assert "Another replica serves this installation" in output
        assert REMEDY in output
        await running.kill()
        await eventually(partial(_is_free, url))
        async with other.running():
            pass


async def _is_free(url: str) -> bool:
    """Return whether no session holds a replica's lock; the server ends broken sessions late."""
    connection = await asyncpg.connect(url)
    try:
        query = "SELECT count(*) FROM pg_locks JOIN pg_database ON oid = database"
        condition = " WHERE locktype = 'advisory' AND datname = current_database()"
        return not await connection.fetchval(query + condition)
    finally:
        await connection.close()


async def test_an_exclusive_presence_excludes_shared_ones(
    postgresql_config: SystemConfig,
) -> None:
    async with scratch_catalogue(postgresql_config) as url:
        catalogue = Catalogue(url)
        one, two = Presence(catalogue, alone=False), Presence(catalogue, alone=False)
        exclusive = Presence(catalogue, alone=True)
        await one.hold()
        await two.hold()
        await one.close()
        with pytest.raises(NotAlone):
            await exclusive.hold()
        await two.close()
        await eventually(partial(_is_free, url))
        await exclusive.hold()
        await exclusive.hold()
        with pytest.raises(NotAlone):
            await one.hold()
        await exclusive.close()
        await catalogue.close()


async def test_a_presence_is_reacquired_after_its_connection_broke(
    postgresql_config: SystemConfig,
) -> None:
    async with scratch_catalogue(postgresql_config) as url:
        catalogue = Catalogue(url)
        exclusive, other = Presence(catalogue, alone=True), Presence(catalogue, alone=False)
        await exclusive.hold()
        session = exclusive.session
        assert session is not None
        await session.invalidate()
        await eventually(partial(_is_free, url))
        await exclusive.hold()
        with pytest.raises(NotAlone):
            await other.hold()
        await exclusive.close()
        await catalogue.close()
