"""What goes on in the servers after a search was given up: no more than one bounded statement.

A proxy before the real server keeps what the store sends. For PostgreSQL: test_postgres_searches.
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

HEADER = 16
PREFIX = HEADER + 5
"""Its header, flags, and the kind of its first section, which is the command."""

BY_FLOAT = (OrderBy(("f",)),)
"""The order in which the stand-in for MongoDB is queried for several ranges of doubles."""


@asynccontextmanager
async def searching(
    kind: type[MongoStore | RedisStore], config: SystemConfig
) -> AsyncIterator[tuple[Holding, Population]]:
    """Make a class of records, and open a store that reaches them through a proxy."""
    config = replace(config, namespace=f"test_{uuid4().hex[:8]}", deadline_s=60.0)
    direct = kind(config)
    await direct.open()
    found = await populate(direct)
    async with proxied(config) as (holding, through):
        store = kind(through)
        await store.open()
        yield holding, Population(store, found.fragment, found.records)
        await store.close()
    await direct.drop(found.fragment)
    await direct.close()


async def is_on_its_way(holding: Holding) -> bool:
    return holding.holds


async def passed(clock: Callable[[], float], moment: float) -> bool:
    return clock() > moment


async def sent_by(holding: Holding, search: Awaitable[object]) -> list[bytes]:
    """Return what is sent while a search is carried out."""
    holding.sent.clear()
    await search
    return list(holding.sent)


async def give_up(holding: Holding, population: Population, find: SearchRequest) -> None:
    """Give up a search whose first statement is on its way, and carry it out again.

    If the first one went on, it would send its second statement while the second one is at work.
    """
    holding.hold()
    search = asyncio.create_task(population.store.find(find))
    await eventually(lambda: is_on_its_way(holding))
    search.cancel()
    with pytest.raises(asyncio.CancelledError):
        await search
    await holding.release()
    await population.store.find(find)


def finds(sent: Sequence[bytes]) -> list[dict[str, Any]]:
    """Return the commands that look for documents, or for more of them."""
    commands = [command for chunk in sent for command in commands_of(chunk)]
    return [command for command in commands if {"find", "getMore"} & command.keys()]


def commands_of(data: bytes) -> list[dict[str, Any]]:
    found = []
    while data:
        length = int.from_bytes(data[:4], "little")
        message, data = data[:length], data[length:]
        if int.from_bytes(message[12:HEADER], "little") == OP_MSG:
            size = int.from_bytes(message[PREFIX : PREFIX + 4], "little")
            found.append(bson.decode(message[PREFIX : PREFIX + size]))
    return found


@pytest.fixture
async def mongo(mongodb_config: SystemConfig) -> AsyncIterator[tuple[Holding, Population]]:
    async with searching(MongoStore, mongodb_config) as opened:
        yield opened


@pytest.fixture
async def redis(redis_config: SystemConfig) -> AsyncIterator[tuple[Holding, Population]]:
    async with searching(RedisStore, redis_config) as opened:
        await opened[1].create({f"more{number}": {"n": 1} for number in range(2 * MAX_RECORDS)})
        yield opened


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


async def test_mongodb_gets_what_a_search_has_left_of_its_time(
    mongo: tuple[Holding, Population],
) -> None:
    holding, population = mongo
    find = SearchRequest(population.fragment, None, BY_FLOAT, 1000, deadline_s=600.0)
    clock = asyncio.get_running_loop().time

    async def take_a_while() -> None:
        holding.hold()
        search = asyncio.create_task(population.store.find(find))
        await eventually(lambda: is_on_its_way(holding))
        since = clock()
        await eventually(lambda: passed(clock, since + 0.1))
        await holding.release()
        await search

    first, *others = finds(await sent_by(holding, take_a_while()))
    assert others
    assert all(command["maxTimeMS"] <= first["maxTimeMS"] - 100 for command in others)


async def test_mongodb_is_sent_nothing_more_of_a_search_that_was_given_up(
    mongo: tuple[Holding, Population],
) -> None:
    holding, population = mongo
    find = SearchRequest(population.fragment, None, BY_FLOAT, 1000, deadline_s=60.0)
    whole = finds(await sent_by(holding, population.store.find(find)))
    assert len(whole) > 1
    assert len(finds(await sent_by(holding, give_up(holding, population, find)))) == 1 + len(whole)


def pages(sent: Sequence[bytes]) -> list[int]:
    """Return how many records at most each script reads that was called."""
    calls = b"".join(sent).split(PAGE.sha.encode())[1:]
    # Behind the hash: the number of keys, the key, index, direction and the most records.
    return [int(call.split(b"\r\n")[10]) for call in calls]


async def test_redis_is_sent_nothing_more_of_a_search_that_was_given_up(
    redis: tuple[Holding, Population],
) -> None:
    holding, population = redis
    find = SearchRequest(population.fragment, None, (), 3 * MAX_RECORDS, deadline_s=60.0)
    whole = pages(await sent_by(holding, population.store.find(find)))
    assert set(whole) == {MAX_RECORDS}
    # Each partition of the class has a script of its own; they are sent in one piece, three times.
    partitions = len(whole) // 3
    sent = pages(await sent_by(holding, give_up(holding, population, find)))
    assert sent == [MAX_RECORDS] * partitions + whole
