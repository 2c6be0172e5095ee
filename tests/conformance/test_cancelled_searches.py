"""After a search is cancelled, its server runs at most one bounded statement.

A proxy before the real server holds what the store sends. PostgreSQL: test_postgres_searches.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import bson
import pytest

from mediator.model.filters import ID, Compare, Comparison, Filter, In
from mediator.model.query import OrderBy
from mediator.stores.mongo import MongoStore
from mediator.stores.port import SearchRequest, SystemConfig
from mediator.stores.redis import RedisStore
from mediator.stores.redis.scripts import PAGE
from mediator.stores.redis.search.listing import MAX_RECORDS
from tests.conformance.drawn_queries import Population, populate
from tests.faults.conditions import eventually
from tests.faults.holding import Holding, proxied

OP_MSG = 2013
"""MongoDB's wire protocol: the message that holds a command."""

HEADER_BYTES = 16
PREFIX_BYTES = HEADER_BYTES + 5
"""Its header, flags, and the kind of its first section, which is the command."""

BY_FLOAT = (OrderBy(("f",)),)
"""In this order the stand-in for MongoDB is queried for several ranges of doubles."""


@asynccontextmanager
async def searching(
    kind: type[MongoStore | RedisStore], config: SystemConfig
) -> AsyncIterator[tuple[Holding, Population]]:
    """Create a class of records, and open a store that reaches it through a proxy."""
    config = replace(config, namespace=f"test_{uuid4().hex[:8]}", deadline_s=60.0)
    direct = kind(config)
    await direct.open()
    population = await populate(direct)
    async with proxied(config) as (holding, proxy_config):
        store = kind(proxy_config)
        await store.open()
        yield holding, Population(store, population.fragment, population.records)
        await store.close()
    await direct.drop(population.fragment)
    await direct.close()


async def is_held(holding: Holding) -> bool:
    return holding.holds


async def has_passed(clock: Callable[[], float], moment: float) -> bool:
    return clock() > moment


async def sent_by(holding: Holding, search: Awaitable[object]) -> list[bytes]:
    """Return what the store sends during a search."""
    holding.sent.clear()
    await search
    return list(holding.sent)


async def cancel_and_repeat(holding: Holding, population: Population, find: SearchRequest) -> None:
    """Cancel a search whose first statement is on its way, and repeat the search.

    If the first search went on, it would send its second statement during the repetition.
    """
    holding.hold()
    search = asyncio.create_task(population.store.find(find))
    await eventually(lambda: is_held(holding))
    search.cancel()
    with pytest.raises(asyncio.CancelledError):
        await search
    await holding.release()
    await population.store.find(find)


def finds(sent: Sequence[bytes]) -> list[dict[str, Any]]:
    """Return the commands that find documents, or get more of them."""
    commands = [command for chunk in sent for command in commands_of(chunk)]
    return [command for command in commands if {"find", "getMore"} & command.keys()]


def commands_of(data: bytes) -> list[dict[str, Any]]:
    commands = []
    while data:
        length = int.from_bytes(data[:4], "little")
        message, data = data[:length], data[length:]
        if int.from_bytes(message[12:HEADER_BYTES], "little") == OP_MSG:
            size = int.from_bytes(message[PREFIX_BYTES : PREFIX_BYTES + 4], "little")
            commands.append(bson.decode(message[PREFIX_BYTES : PREFIX_BYTES + size]))
    return commands


@pytest.fixture
async def mongo(mongodb_config: SystemConfig) -> AsyncIterator[tuple[Holding, Population]]:
    async with searching(MongoStore, mongodb_config) as pair:
        yield pair


@pytest.fixture
async def redis(redis_config: SystemConfig) -> AsyncIterator[tuple[Holding, Population]]:
    async with searching(RedisStore, redis_config) as pair:
        await pair[1].create({f"more{number}": {"n": 1} for number in range(2 * MAX_RECORDS)})
        yield pair


@pytest.mark.parametrize(
    ("filter_", "order"),
    [
        (None, ()),
        (None, BY_FLOAT),
        (Compare(Comparison.GE, ("k",), 1), ()),
        (Compare(Comparison.EQ, ("n",), 1), BY_FLOAT),
        (In(ID, ("a", "b")), ()),
    ],
)
async def test_mongodb_gets_a_limit_for_each_statement_of_a_search(
    mongo: tuple[Holding, Population], filter_: Filter | None, order: tuple[OrderBy, ...]
) -> None:
    holding, population = mongo
    find = SearchRequest(population.fragment, filter_, order, 50, deadline_s=60.0)
    sent = finds(await sent_by(holding, population.store.find(find)))
    assert sent
    assert all(0 < command["maxTimeMS"] <= 60_000 for command in sent)


async def test_mongodb_gets_the_remaining_time_of_a_search(
    mongo: tuple[Holding, Population],
) -> None:
    holding, population = mongo
    find = SearchRequest(population.fragment, None, BY_FLOAT, 1000, deadline_s=600.0)
    clock = asyncio.get_running_loop().time

    async def search_slowly() -> None:
        holding.hold()
        search = asyncio.create_task(population.store.find(find))
        await eventually(lambda: is_held(holding))
        since = clock()
        await eventually(lambda: has_passed(clock, since + 0.1))
        await holding.release()
        await search

    first, *later = finds(await sent_by(holding, search_slowly()))
    assert later
    assert all(command["maxTimeMS"] <= first["maxTimeMS"] - 100 for command in later)


async def test_mongodb_gets_no_further_statement_of_a_cancelled_search(
    mongo: tuple[Holding, Population],
) -> None:
    holding, population = mongo
    find = SearchRequest(population.fragment, None, BY_FLOAT, 1000, deadline_s=60.0)
    commands = finds(await sent_by(holding, population.store.find(find)))
    assert len(commands) > 1
    assert len(
        finds(await sent_by(holding, cancel_and_repeat(holding, population, find)))
    ) == 1 + len(commands)


def pages(sent: Sequence[bytes]) -> list[int]:
    """Return the record limit of each script call."""
    calls = b"".join(sent).split(PAGE.sha.encode())[1:]
    # After the hash: the number of keys, the key, index, direction and record limit.
    return [int(call.split(b"\r\n")[10]) for call in calls]


async def test_redis_gets_no_further_script_of_a_cancelled_search(
    redis: tuple[Holding, Population],
) -> None:
    holding, population = redis
    find = SearchRequest(population.fragment, None, (), 3 * MAX_RECORDS, deadline_s=60.0)
    limits = pages(await sent_by(holding, population.store.find(find)))
    assert set(limits) == {MAX_RECORDS}
    # Each partition of the class has its own call; the calls are sent together, three times.
    partitions = len(limits) // 3
    sent = pages(await sent_by(holding, cancel_and_repeat(holding, population, find)))
    assert sent == [MAX_RECORDS] * partitions + limits
