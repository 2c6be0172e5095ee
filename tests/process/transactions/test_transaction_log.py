"""The log of joint writes on PostgreSQL, whose server closes pooled connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from threading import Thread
from typing import Any

import asyncpg
import pytest
from sqlalchemy import select

from mediator.base.errors import Unavailable
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.transaction_log import CatalogueTransactions
from mediator.stores.port import SystemConfig
from mediator.transactions.log import State, TransactionEntry
from tests.process.service import scratch_catalogue

ENTRY = TransactionEntry("m", "shop", [["orders", 'é\\"1']])
OTHERS = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


@pytest.fixture
async def url(postgresql_config: SystemConfig) -> AsyncIterator[str]:
    async with scratch_catalogue(postgresql_config) as url:
        yield url


@pytest.fixture
async def catalogue(url: str) -> AsyncIterator[Catalogue]:
    catalogue = Catalogue(url)
    await catalogue.open()
    yield catalogue
    await catalogue.close()


@pytest.fixture
def log(catalogue: Catalogue) -> CatalogueTransactions:
    return CatalogueTransactions(catalogue)


# For each entry, whether the statement that wrote it waits for the disk.
WAITS = """
CREATE TABLE waits (state text, waits text);
CREATE FUNCTION note_wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO waits VALUES (NEW.state, current_setting('synchronous_commit'));
    RETURN NULL;
END $$;
CREATE TRIGGER note_wait AFTER INSERT OR UPDATE ON portolan_catalogue.transactions
FOR EACH ROW EXECUTE FUNCTION note_wait();
"""


def close_connections(url: str) -> None:
    """Make the server close every other connection, before the event loop can notice it."""

    async def close() -> None:
        connection = await asyncpg.connect(url)
        while await connection.fetchval(OTHERS):
            pass
        await connection.close()

    thread = Thread(target=asyncio.run, args=(close(),))
    thread.start()
    thread.join()


async def test_idempotent_statements_are_retried_on_a_new_connection(
    log: CatalogueTransactions, url: str
) -> None:
    assert await log.begin(ENTRY, 60.0)
    close_connections(url)
    assert (await log.find(["m"]))["m"] == ENTRY


async def test_a_commit_is_never_sent_twice(log: CatalogueTransactions, url: str) -> None:
    assert await log.begin(ENTRY, 60.0)
    close_connections(url)
    with pytest.raises(Unavailable):
        await log.commit("m", [])
    assert await log.commit("m", [{"class": "orders"}])
    entry = (await log.find(["m"]))["m"]
    assert (entry.state, entry.redo) == (State.COMMITTED, [{"class": "orders"}])


async def test_only_deciding_statements_wait_for_the_disk(
    log: CatalogueTransactions, url: str
) -> None:
    server = await asyncpg.connect(url)
    try:
        await server.execute(WAITS)
        for intent in ("m", "n"):
            assert await log.begin(replace(ENTRY, intent=intent), 60.0)
        assert await log.commit("m", [])
        await log.finish("m", [])
        assert await log.abort("n") is State.ABORTED
        assert await log.begin(replace(ENTRY, intent="s", state=State.STAGED, redo=[]), 60.0)
        await log.refuse(["o"], 60.0)
        observed = {(row["state"], row["waits"]) for row in await server.fetch("TABLE waits")}
    finally:
        await server.close()
    assert observed == {
        ("preparing", "off"),
        ("staged", "off"),
        ("committed", "on"),
        ("done", "off"),
        ("aborted", "on"),
    }


async def test_an_attempt_is_decided_once(log: CatalogueTransactions) -> None:
    """A late coordinator does not commit an aborted attempt, nor abort a committed one."""
    redo: list[dict[str, Any]] = [{"class": "orders"}]
    for state in (State.PREPARING, State.STAGED):
        first, second = f"{state}-1", f"{state}-2"
        for intent in (first, second):
            assert await log.begin(replace(ENTRY, intent=intent, state=state, redo=redo), 60.0)
        assert await log.abort(first) is State.ABORTED
        assert not await log.commit(first, redo)
        assert await log.commit(second, redo)
        assert await log.abort(second) is State.COMMITTED
        entries = await log.find([first, second])
        assert [entries[i].state for i in (first, second)] == [State.ABORTED, State.COMMITTED]
        assert entries[second].redo == redo
    assert await log.abort("unknown") is None
    await log.refuse(["o"], 60.0)
    assert not await log.begin(replace(ENTRY, intent="o"), 60.0)


async def test_a_connection_that_was_closed_in_the_pool_is_replaced(
    catalogue: Catalogue, url: str
) -> None:
    for _ in range(2):
        close_connections(url)
        await catalogue.ping()
        close_connections(url)
        async with catalogue.begin() as connection:
            assert (await connection.execute(select(1))).scalar_one() == 1


async def test_a_server_that_takes_no_connections_does_not_answer(
    log: CatalogueTransactions, url: str, postgresql_config: SystemConfig
) -> None:
    """As while it restarts after a crash."""
    name = url.partition("?")[0].rpartition("/")[2]
    server = await asyncpg.connect(postgresql_config.url)
    try:
        await server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        await server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name
        )
        with pytest.raises(Unavailable):
            await log.find(["m"])
    finally:
        await server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        await server.close()


async def test_open_writes_are_found_by_the_objects_they_name(log: CatalogueTransactions) -> None:
    searched, swapped = ["authors", "ada"], ["ada", "authors"]
    for intent, records in {
        "a": [["books", "b"], searched],
        "b": [swapped],
        "c": [["authors", ""]],
        "d": [searched],
        "e": [searched],
    }.items():
        assert await log.begin(TransactionEntry(intent, "shop", records), 10.0)
    assert await log.begin(TransactionEntry("f", "news", [searched]), 10.0)
    assert await log.commit("a", [])
    assert await log.abort("d") is State.ABORTED
    assert await log.commit("e", [])
    await log.finish("e", [])
    entries = await log.find_open("shop", [searched, ["authors", ""]])
    assert {intent: entry.state for intent, entry in entries.items()} == {
        "a": State.COMMITTED,
        "c": State.PREPARING,
    }
    assert await log.find_open("shop", []) == {}
