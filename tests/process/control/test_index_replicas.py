"""Replicas change one class concurrently: the schema in force always has its indexes."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from mediator.base.errors import Conflict, PreconditionFailed
from mediator.catalogue import schemas as catalogue_schemas
from tests.faults.conditions import eventually
from tests.process.control.test_index_builds import SYSTEMS, access, fill_database, orders, put
from tests.process.control.test_placing_anew import follow, late, pause_at
from tests.process.service import Service

__all__ = ["late"]  # a fixture

# As the server does after a minute.
END_LOCKS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND state = 'idle in transaction'
AND pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted)
"""


@pytest.mark.parametrize("system", SYSTEMS)
async def test_stores_are_prepared_for_one_change_at_a_time(
    mediator: Service, late: Service, system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await fill_database(mediator, system)
    with monkeypatch.context() as patched:
        patched.setattr(catalogue_schemas, "PREPARATION_WAIT_S", 0.0)
        pause = pause_at(patched, mediator.mediator.stored_schemas, "put")
        change = put(mediator, database, orders(system, index=True))
        await pause.reached.wait()
        with pytest.raises(Conflict, match="Another replica is at work on the schema"):
            await put(late, database, orders(system, max_length=100))
        pause.open.set()
        await change
    assert await access(mediator, database) == "index"
    both = orders(system, index=True, max_length=100)
    assert (await put(late, database, both)).version == 3


@pytest.mark.parametrize("system", SYSTEMS)
async def test_no_store_is_prepared_for_a_change_that_will_be_refused(
    mediator: Service, late: Service, system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await fill_database(mediator, system)
    with monkeypatch.context() as patched:
        pause = pause_at(patched, late.mediator.cutover, "put_in_force")
        change = put(late, database, orders(system, max_length=100))
        await pause.reached.wait()
        await put(mediator, database, orders(system, index=True))
        pause.open.set()
        with pytest.raises(PreconditionFailed):
            await change
    assert await access(mediator, database) == "index"


@pytest.mark.parametrize("system", SYSTEMS)
async def test_an_index_that_is_added_again_is_not_removed(
    mediator: Service, late: Service, system: str
) -> None:
    """Its removal waits for a replica that still searches by it, and adds it meanwhile."""
    database = await fill_database(mediator, system)
    await put(mediator, database, orders(system, index=True))
    await follow(late)
    removal = put(mediator, database, orders(system))

    async def is_removed() -> bool:
        return (await mediator.mediator.control.stored_schema(database))[1] == 3

    await eventually(is_removed)
    await put(late, database, orders(system, index=True))
    assert not removal.done()
    await follow(late)
    await removal
    await follow(mediator)
    assert await access(mediator, database) == "index"


async def test_a_change_that_outlasts_its_lock_is_in_force(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, catalogue = await fill_database(mediator, "redis"), mediator.mediator.catalogue
    with monkeypatch.context() as patched:
        pause = pause_at(patched, mediator.mediator.stored_schemas, "put")
        change = put(mediator, database, orders("redis", index=True))
        await pause.reached.wait()
        rows = await catalogue.execute(text(END_LOCKS))
        assert rows.scalars().all() == [True]
        pause.open.set()
        assert (await change).version == 2
    assert await access(mediator, database) == "index"
