"""Borrowed connections behave like the driver's own commands, and return to its pool."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from pymongo.errors import DocumentTooLarge, OperationFailure

from mediator.stores.mongo.connection import DriverConnections
from mediator.stores.mongo.errors import DUPLICATE_KEY
from mediator.stores.mongo.session import MongoSession
from mediator.stores.port import SystemConfig

POOL = 4


@pytest.fixture
async def session(mongodb_config: SystemConfig) -> AsyncIterator[MongoSession]:
    session = MongoSession(replace(mongodb_config, pool_size=POOL))
    await session.start()
    yield session
    await session.close()


@pytest.fixture
async def database(session: MongoSession) -> AsyncIterator[str]:
    name = f"connections{uuid.uuid4().hex[:8]}"
    yield name
    await session.client.drop_database(name)


def insert(id_: Any, **values: Any) -> dict[str, Any]:
    return {"insert": "c", "documents": [{"_id": id_, **values}]}


def find(id_: Any) -> dict[str, Any]:
    return {"find": "c", "filter": {"_id": id_}}


async def test_commands_follow_each_other_on_one_connection(
    session: MongoSession, database: str
) -> None:
    connections = session.connections
    for number in range(20):
        assert (await connections.command(database, insert(number)))["n"] == 1
        reply = await connections.command(database, find(number))
        assert reply["cursor"]["firstBatch"] == [{"_id": number}]
    assert connections.lent == len(connections.idle) == 1


async def test_concurrent_commands_leave_connections_to_the_driver(
    session: MongoSession, database: str
) -> None:
    connections = session.connections
    replies = await asyncio.gather(*(connections.command(database, insert(n)) for n in range(40)))
    assert all(reply["n"] == 1 for reply in replies)
    assert connections.lent <= POOL - 2


async def test_an_error_reply_costs_no_connection(session: MongoSession, database: str) -> None:
    connections = session.connections
    await connections.command(database, insert(1))
    with pytest.raises(OperationFailure):
        await connections.command(database, {"find": "c", "filter": {"a": {"$nonsense": 1}}})
    with pytest.raises(DocumentTooLarge):
        await connections.command(database, insert(2, b=b"x" * (17 * 2**20)))
    reply = await connections.command(database, insert(1))
    assert reply["writeErrors"][0]["code"] == DUPLICATE_KEY
    assert connections.lent == len(connections.idle) == 1


async def test_commands_of_one_round_trip_are_all_carried_out(
    session: MongoSession, database: str
) -> None:
    """An unread reply would be taken for the reply to the next command."""
    connections = session.connections
    first, second = await connections.commands(database, [insert(1), find(1)])
    assert (first["n"], second["cursor"]["firstBatch"]) == (1, [{"_id": 1}])
    invalid = {"find": "c", "filter": {"a": {"$nonsense": 1}}}
    with pytest.raises(OperationFailure):
        await connections.commands(database, [invalid, insert(2)])
    with pytest.raises(DocumentTooLarge):
        await connections.commands(database, [insert(3), insert(4, b=b"x" * (17 * 2**20))])
    batches = [
        (await connections.command(database, find(n)))["cursor"]["firstBatch"] for n in (2, 3)
    ]
    assert batches == [[{"_id": 2}], []]
    assert connections.lent == len(connections.idle) == 1


async def test_a_cancelled_call_discards_its_connection(
    session: MongoSession, database: str
) -> None:
    """Its reply would be taken for the reply to the next command."""
    connections = session.connections
    await connections.command(database, insert(1))
    call = asyncio.create_task(connections.command(database, find(1)))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert connections.lent == 0
    reply = await connections.command(database, find("none"))
    assert reply["cursor"]["firstBatch"] == []


async def test_connections_return_to_the_pool(session: MongoSession, database: str) -> None:
    connections = session.connections
    await connections.command(database, insert(1))
    assert connections.retiring is not None
    await connections.retiring
    assert connections.lent == 0
    assert (await connections.command(database, find(1)))["cursor"]["firstBatch"]


async def test_a_call_in_flight_survives_closing(
    session: MongoSession, database: str, mongodb_config: SystemConfig
) -> None:
    connections = DriverConnections(session.client, mongodb_config)
    call = asyncio.create_task(connections.command(database, insert(1)))
    await asyncio.sleep(0)
    await connections.close()
    assert (await call)["n"] == 1
    assert connections.lent == 0
