"""A failover to a server with an older state and a slow clock: followers miss nothing."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from mediator.changes.document import encoded
from mediator.changes.feed import PARTITIONS, WriterProgress
from mediator.changes.position import FeedPosition
from mediator.changes.subscriptions import Subscriptions
from mediator.coordination.scripts import feed_key
from mediator.model.change import Change
from tests.faults.caching.redis_server import Server, running
from tests.process.changes.log_relay.logs import Harness, drain

AHEAD_MS, IDLE_MS = 60_000, 7_200_000

Append = Callable[[Harness, list[Change]], Awaitable[None]]


async def by_a_new_relay(harness: Harness, changes: list[Change]) -> None:
    """Relay the log with a relay that does not know the feed."""
    await drain(await harness.relay(f"after{len(changes)}"))


async def from_records(harness: Harness, changes: list[Change]) -> None:
    for database in harness.databases:
        documents = [encoded(change) for change in changes if change.database_id == database]
        await harness.feed.append_newer(database, documents, WriterProgress("store", "one"))


class Failover:
    """A feed whose server is replaced by one with an older state, in the same directory."""

    def __init__(self, server: Server, append: Append) -> None:
        self.harness = Harness(server.url)
        self.changes: list[Change] = []
        self._server = server
        self._append = append
        self._files = server.log.parent
        self._older = server.directory / "older"

    @property
    def database(self) -> str:
        return self.harness.databases[0]

    async def write(self, *objects: str) -> None:
        """Write and append changes of objects."""
        self.changes += [self.harness.log.write(self.database, id_) for id_ in objects]
        await self._append(self.harness, self.changes)

    async def read(self, after: FeedPosition) -> tuple[list[str], FeedPosition]:
        """Return the ids of all changes after a position, by age, and the position after them."""
        subscriptions = Subscriptions(self.harness.feed)
        subscription = await subscriptions.open(self.database, after)
        ids: list[str] = []
        try:
            while events := await subscription.next(0.01):
                ids += [orjson.loads(event.data)["id"] for event, _ in events]
        finally:
            await subscriptions.close_all()
        return sorted(ids, key=self._all().index), subscription.position

    def _all(self) -> list[str]:
        return [change.id for change in self.changes]

    def save(self) -> None:
        """Save the state of the other server."""
        shutil.copytree(self._files, self._older)

    async def set_ahead(self) -> None:
        """Let the server number changes as if its clock were ahead of the other one's."""
        for number in range(PARTITIONS):
            stream = feed_key(self.database, number)
            id_ = await self._add(stream, {"k": "", "c": ""}, AHEAD_MS + number)
            # A removed entry leaves its id behind.
            await self.harness.redis.xdel(stream, id_)

    async def set_idle(self) -> None:
        """Make all entries hours old."""
        redis = self.harness.redis
        for number in range(PARTITIONS):
            stream = feed_key(self.database, number)
            entries: Any = await redis.xrange(stream)
            await redis.delete(stream)
            for offset_ms, (_, fields) in enumerate(entries):
                await self._add(stream, fields, offset_ms - IDLE_MS)

    async def _add(self, stream: str, fields: Any, ahead_ms: int) -> Any:
        seconds, _ = await self.harness.redis.time()
        id_ = f"{seconds * 1000 + ahead_ms}-0"
        return await self.harness.redis.xadd(stream, fields, id_)

    async def fail_over(self) -> None:
        previous = self.harness
        await self.disconnect()
        self._server.kill()
        shutil.rmtree(self._files)
        shutil.move(self._older, self._files)
        self._server.start()
        self.harness = Harness(self._server.url)
        self.harness.databases, self.harness.routed_databases = (
            previous.databases,
            previous.routed_databases,
        )
        self.harness.log, self.harness.system = previous.log, previous.system

    async def disconnect(self) -> None:
        await self.harness.client.close()
        await self.harness.redis.aclose()


@asynccontextmanager
async def failing_over(append: Append) -> AsyncIterator[Failover]:
    with running("failover") as server:
        failover = Failover(server, append)
        try:
            yield failover
        finally:
            await failover.disconnect()


@pytest.mark.parametrize("append", [by_a_new_relay, from_records])
@pytest.mark.parametrize("lost", [("x", "x"), ("x", *"abcdefgh")], ids=["known", "new"])
async def test_a_follower_misses_nothing_after_a_failover_to_a_clock_that_is_behind(
    append: Append, lost: tuple[str, ...]
) -> None:
    """The follower has read the lost changes, and nothing remembers that the feed had them."""
    async with failing_over(append) as failover:
        await failover.write("x")
        _, first = await failover.read(await _beginning(failover))
        failover.save()
        await failover.set_ahead()
        await failover.write(*lost)
        ids, position = await failover.read(first)
        assert ids == [change.id for change in failover.changes[1:]]
        await failover.fail_over()
        await failover.write("x", "a", "b", "c", "d")
        resumed, _ = await failover.read(position)
        assert resumed == ids + [change.id for change in failover.changes[-5:]]


@pytest.mark.parametrize("append", [by_a_new_relay, from_records])
@pytest.mark.parametrize("old_objects", [(), ("x",)], ids=["nothing", "old changes"])
async def test_a_follower_misses_nothing_after_a_failover_of_a_feed_that_was_idle(
    append: Append, old_objects: tuple[str, ...]
) -> None:
    """The last remaining id does not bound the ids given out since."""
    async with failing_over(append) as failover:
        beginning = await _beginning(failover)
        await failover.write(*old_objects)
        _, first = await failover.read(beginning)
        await failover.set_idle()
        failover.save()
        await failover.set_ahead()
        await failover.write("x", "a")
        ids, position = await failover.read(first)
        await failover.fail_over()
        await failover.write("x", "a", "b", "c", "d")
        resumed, _ = await failover.read(position)
        assert resumed == ids + [change.id for change in failover.changes[-5:]]


async def test_a_server_that_restarts_with_its_state_repeats_nothing() -> None:
    async with failing_over(by_a_new_relay) as failover:
        await failover.write("x", "a")
        _, position = await failover.read(await _beginning(failover))
        failover.save()
        await failover.fail_over()
        await failover.write("x", "b")
        ids, position = await failover.read(position)
        assert ids == [change.id for change in failover.changes[2:]]
        assert (await failover.read(position))[0] == []


async def _beginning(failover: Failover) -> FeedPosition:
    return await Subscriptions(failover.harness.feed).beginning(failover.database)
