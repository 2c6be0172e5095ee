"""Workers, splits and the manager in real processes, killed at each step of both protocols."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from random import Random
from typing import Any
from uuid import uuid4

import pytest

from mediator.coordination.cluster_store import RedisClusterStore
from mediator.coordination.connecting import connect
from mediator.relocation.cluster import Declared
from mediator.relocation.messages import Cancel, Relocate
from mediator.relocation.split import LogEntry
from mediator.stores.port import SystemConfig
from tests.process.relocation.played import PlayedCluster, until
from tests.properties.relocation.scenario import WINDOW_S, batch_join, workload_of
from tests.unit.standing.papers_queries import document, query

RELATIONS = "ABC"
SENDER, RECEIVER = "worker:0", "worker:1"
SPLITS = ("split:A", "split:B", "split:C")
ALL = 1_000_000
"""More rows than there are."""


@pytest.fixture
async def played(redis_config: SystemConfig) -> AsyncIterator[PlayedCluster]:
    """A cluster whose participants nobody plays yet."""
    name = f"c{uuid4().hex[:12]}"
    redis = connect(redis_config.url)
    cluster = PlayedCluster(RedisClusterStore(redis, name), name, redis_config.url)
    of = document(dict.fromkeys(RELATIONS, "k"))
    of["queries"] = {"all": query(dict.fromkeys(RELATIONS, "k"), WINDOW_S)}
    await cluster.declare(
        Declared(queries=of, workers=2, owners=[0, 0, 0, 1], lateness_s=2.0, adaptive=False)
    )
    yield cluster
    cluster.stop()
    async for key in redis.scan_iter(match=f"*{name}*"):
        await redis.delete(key)
    await redis.aclose()


class Source:
    """Appends tuples of all relations, and remembers them."""

    def __init__(self, cluster: PlayedCluster) -> None:
        self.cluster = cluster
        self.draw = Random(7)
        self.history: defaultdict[str, list[LogEntry]] = defaultdict(list)
        self.time_s = 0.0
        self._latest_s: dict[str, float] = {}

    async def append(self, count: int) -> None:
        for _ in range(count):
            self.time_s += 0.1
            relation = self.draw.choice(RELATIONS)
            time_s = self.time_s + self.draw.choice([0, 0, -1.5, -5])
            await self._log(relation, time_s, {"k": self.draw.randrange(5)})

    async def pass_by(self, windows: float) -> None:
        """Let time go on: only heartbeats arrive."""
        self.time_s += windows * WINDOW_S
        for relation in RELATIONS:
            await self._log(relation, self.time_s, None)

    async def _log(self, relation: str, time_s: float, values: Mapping[str, Any] | None) -> None:
        await self.cluster.store.append(relation, [(time_s, values)])
        latest_s = max(self._latest_s.get(relation, time_s), time_s)
        self._latest_s[relation] = latest_s
        entries = self.history[relation]
        entries.append(LogEntry(len(entries) + 1, time_s, values, latest_s))

    async def read(self) -> bool:
        """Say whether splits have read all."""
        positions = await self.cluster.positions(RELATIONS)
        return all(positions[name] == len(self.history[name]) for name in RELATIONS)


async def processed(cluster: PlayedCluster, source: Source) -> None:
    """Wait until every worker has seen the latest watermark of every relation."""

    async def is_done() -> bool:
        if not await source.read():
            return False
        latest = {name: source._latest_s[name] - 2.0 for name in RELATIONS}  # noqa: SLF001
        seen = await cluster.store.field([SENDER, RECEIVER], "watermarks")
        return all(each == latest for each in seen)

    await until(is_done)


async def reached(cluster: PlayedCluster, phase: str) -> None:
    async def is_reached() -> bool:
        relocations = await cluster.relocations()
        return bool(relocations) and relocations[-1]["phase"] == phase

    await until(is_reached)


async def restart(cluster: PlayedCluster, address: str) -> None:
    cluster.kill(address)
    cluster.start(address)


async def check(cluster: PlayedCluster, source: Source) -> None:
    await processed(cluster, source)
    expected = batch_join(workload_of(RELATIONS), source.history)
    assert expected.total() > 100
    assert await cluster.found() == expected


async def started(played: PlayedCluster) -> Source:
    for each in (*SPLITS, SENDER, RECEIVER, "manager"):
        played.start(each)
    source = Source(played)
    await source.append(120)
    await processed(played, source)
    return source


async def test_a_parallel_track_survives_whoever_is_killed(played: PlayedCluster) -> None:
    source = await started(played)
    played.kill("split:C")
    await played.store.request(Relocate("ptlb", SENDER, RECEIVER, ALL))
    await reached(played, "duplicating")
    # Two splits have switched, or will soon; the third one still sends old tuples.
    await source.append(30)
    await restart(played, SENDER)
    await source.append(30)
    played.start("split:C")
    await source.append(30)
    await restart(played, RECEIVER)
    await processed(played, source)
    played.kill("manager")
    await source.pass_by(1.5)

    async def purged() -> bool:
        (relocations,) = await played.store.field([SENDER], "relocations")
        return bool(relocations == [0, 1])

    await until(purged)
    played.kill(SENDER)
    played.start("manager")
    await reached(played, "deleting")
    await source.append(30)
    played.start(SENDER)
    await reached(played, "done")
    await source.append(30)
    await restart(played, RECEIVER)
    await source.append(30)
    await check(played, source)


async def test_moving_state_survives_whoever_is_killed(played: PlayedCluster) -> None:
    source = await started(played)
    played.kill("split:C")
    await played.store.request(Relocate("mslb", SENDER, RECEIVER, ALL))
    await reached(played, "deactivating")
    await source.append(30)
    await restart(played, SENDER)
    # The receiver is not there when it is sent the groups, and tuples are buffered meanwhile.
    played.kill(RECEIVER)
    played.start("split:C")
    await reached(played, "moving")
    await restart(played, SENDER)
    await source.append(30)
    # What is buffered becomes old, and still has its partners.
    await source.pass_by(2)
    played.kill("split:C")
    played.start(RECEIVER)
    await reached(played, "reactivating")
    # It has the groups from a message that is gone, and makes them anew from the logs.
    await restart(played, RECEIVER)
    await restart(played, "manager")
    await restart(played, "split:A")
    await source.append(30)
    played.start("split:C")
    await reached(played, "done")
    await source.append(30)
    await restart(played, RECEIVER)
    await source.append(30)
    await check(played, source)
    (relocation,) = await played.relocations()
    assert relocation["partitions"] == [0, 1, 2]
    assert relocation["moved"] > 0


async def test_a_parallel_track_can_be_given_up(played: PlayedCluster) -> None:
    source = await started(played)
    await played.store.request(Relocate("ptlb", SENDER, RECEIVER, ALL))
    await reached(played, "duplicating")
    await source.append(60)
    played.kill(RECEIVER)
    await played.store.request(Cancel(1))
    # What the receiver alone could emit it still has to.
    await reached(played, "stopping")
    await source.append(30)
    played.start(RECEIVER)
    await reached(played, "cancelled")
    await source.append(30)
    await check(played, source)


async def test_moving_state_can_be_given_up_until_it_is_shipped(played: PlayedCluster) -> None:
    source = await started(played)
    played.kill("split:C")
    await played.store.request(Relocate("mslb", SENDER, RECEIVER, ALL))
    await reached(played, "deactivating")
    await source.append(30)
    await played.store.request(Cancel(1))
    await reached(played, "resuming")
    played.start("split:C")
    await reached(played, "cancelled")
    await restart(played, SENDER)
    await source.append(30)
    await check(played, source)


async def test_of_two_processes_that_play_one_worker_one_commits(played: PlayedCluster) -> None:
    source = Source(played)
    played.start("manager", "split:A", "split:B", "split:C", RECEIVER, key="others")
    played.start(SENDER, key="one")
    played.start(SENDER, key="other")
    for _ in range(10):
        await source.append(30)
    await check(played, source)
