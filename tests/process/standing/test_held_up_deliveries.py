"""Results for a stream while the catalogue does not answer, and while the stream has no room."""

from __future__ import annotations

from typing import Any, cast

import orjson
import pytest

from mediator.base.clock import SystemClock
from mediator.base.errors import Unavailable
from mediator.coordination.event_streams import RedisEventStreams
from mediator.event_streams.port import EventStream, NewTuple, StreamKey
from mediator.routing.model import DatabaseRoute
from mediator.schema.tree import Schema
from mediator.standing import delivery
from mediator.standing.context import HolderContext
from mediator.standing.delivery import Deliveries
from mediator.standing.model import Join
from mediator.standing.query import Destination, Source, StandingQuery
from tests.process.standing.published import Published

PAIRS = EventStream("pairs", frozenset("k"), retention_s=3600.0, most_tuples=3)
READS_CLASS = {"r": Source("class", "c")}
INTO = Destination(Source("stream", "pairs"), {"k": ("r", "a")})
QUERY = StandingQuery(READS_CLASS, Join(frozenset(), frozenset(), 1.0), 0.0, INTO, 1, {})


class HandClock(SystemClock):
    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


class AwayPlane:
    """The data plane as deliveries use it: to look for a newer schema."""

    def __init__(self, route: DatabaseRoute) -> None:
        self.by_id = {route.id: route}
        self.lookups, self.is_away = 0, False

    @property
    def model(self) -> AwayPlane:
        return self

    async def route(self, _database: str, _class: str) -> None:
        self.lookups += 1
        if self.is_away:
            raise Unavailable("It is down.", system="catalogue")


class Delivering:
    """Delivers published results by a clock that a test sets."""

    def __init__(self, published: Published) -> None:
        self.published, self.clock = published, HandClock()
        database = published.key.database
        route = DatabaseRoute(Schema(database), {}, database)
        self.plane = AwayPlane(route)
        self.streams = RedisEventStreams(published.redis)
        unused, plane = cast(Any, None), cast(Any, self.plane)  # deliveries use only some members
        context = HolderContext(
            plane, unused, self.streams, published.results, unused, "one", self.clock
        )
        self.deliveries = Deliveries(context, route, published.lease)

    async def publish(self, sequence: int, *values: int) -> None:
        results = [orjson.dumps({"time_s": 1.0, "tuples": {"r": {"a": a}}}) for a in values]
        await self.published.publish(sequence, results={self.published.key.query: results})

    async def deliver(self) -> None:
        await self.deliveries.deliver({self.published.key.query: QUERY}, {"pairs": PAIRS})

    async def values(self) -> list[Any]:
        tuples = (await self.streams.read(self.name, 0, 100)).tuples
        return [tuple_.values["k"] for tuple_ in tuples]

    @property
    def name(self) -> StreamKey:
        return StreamKey(self.published.key.database, "pairs")


@pytest.fixture
async def delivering(published: Published, monkeypatch: pytest.MonkeyPatch) -> Delivering:
    monkeypatch.setattr(delivery, "MAX_WAITING", 2)
    new_delivering = Delivering(published)
    assert await new_delivering.streams.declare(new_delivering.name, PAIRS, 1)
    return new_delivering


async def test_batches_wait_before_results_are_removed_that_the_catalogue_holds_up(
    delivering: Delivering,
) -> None:
    delivering.plane.is_away = True
    await delivering.publish(0, 1, 2)
    await delivering.deliver()
    assert not delivering.deliveries.is_held_up
    await delivering.publish(1, 3)
    for _ in range(3):
        await delivering.deliver()
        assert delivering.deliveries.is_held_up
    assert delivering.plane.lookups == 1, "each lookup can take seconds"
    delivering.plane.is_away = False
    delivering.clock.now_s += 5.0
    await delivering.deliver()
    assert not delivering.deliveries.is_held_up
    assert await delivering.values() == [1, 2, 3]


async def test_a_stream_without_room_is_not_tried_in_every_round(delivering: Delivering) -> None:
    await delivering.streams.append(delivering.name, [NewTuple(0.0, b'{"k": 0}')] * 3)
    await delivering.publish(0, 1)
    for _ in range(3):
        await delivering.deliver()
    assert delivering.plane.lookups == 1
    delivering.clock.now_s += 0.25
    await delivering.deliver()
    assert delivering.plane.lookups == 2
    assert await delivering.values() == [0, 0, 0]
