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
from tests.process.relocation.processes import ProcessCluster, until
from tests.properties.relocation.scenario import WINDOW_S, batch_join, workload_of
from tests.unit.standing.papers_queries import document, query

RELATIONS = "ABC"
SENDER, RECEIVER = "worker:0", "worker:1"
SPLITS = ("split:A", "split:B", "split:C")
ALL = 1_000_000
"""More rows than there are."""


@pytest.fixture
async def running(redis_config: SystemConfig, late_replies: None) -> AsyncIterator[ProcessCluster]:
    """A cluster whose participants do not run yet."""
    name = f"c{uuid4().hex[:12]}"
    redis = connect(redis_config.url)
    cluster = ProcessCluster(RedisClusterStore(redis, name), name, redis_config.url)
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

    def __init__(self, cluster: ProcessCluster) -> None:
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


async def processed(cluster: ProcessCluster, source: Source) -> None:
    """Wait until every worker has seen the latest watermark of every relation."""

    async def is_done() -> bool:
        if not await source.read():
            return False
        latest = {name: source._latest_s[name] - 2.0 for name in RELATIONS}  # noqa: SLF001
        seen = await cluster.store.field([SENDER, RECEIVER], "watermarks")
        return all(each == latest for each in seen)

    await until(is_done)


async def reached(cluster: ProcessCluster, phase: str) -> None:
    async def is_reached() -> bool:
        relocations = await cluster.relocations()
        return bool(relocations) and relocations[-1]["phase"] == phase

    await until(is_reached)


async def restart(cluster: ProcessCluster, address: str) -> None:
    cluster.kill(address)
    cluster.start(address)


async def check(cluster: ProcessCluster, source: Source) -> None:
    await processed(cluster, source)
    expected = batch_join(workload_of(RELATIONS), source.history)
    assert expected.total() > 100
    assert await cluster.found() == expected


async def started(running: ProcessCluster) -> Source:
    for each in (*SPLITS, SENDER, RECEIVER, "manager"):
        running.start(each)
    source = Source(running)
    await source.append(120)
    await processed(running, source)
    return source


async def test_a_parallel_track_survives_whoever_is_killed(running: ProcessCluster) -> None:
    source = await started(running)
    running.kill("split:C")
    await running.store.request(Relocate("ptlb", SENDER, RECEIVER, ALL))
    await reached(running, "duplicating")
    # Two splits have switched, or will soon; the third one still sends old tuples.
    await source.append(30)
    await restart(running, SENDER)
    await source.append(30)
    running.start("split:C")
    await source.append(30)
    await restart(running, RECEIVER)
    await processed(running, source)
    running.kill("manager")
    await source.pass_by(1.5)

    async def purged() -> bool:
        (relocations,) = await running.store.field([SENDER], "relocations")
        return bool(relocations == [0, 1])

    await until(purged)
    running.kill(SENDER)
    running.start("manager")
    await reached(running, "deleting")
    await source.append(30)
    running.start(SENDER)
    await reached(running, "done")
    await source.append(30)
    await restart(running, RECEIVER)
    await source.append(30)
    await check(running, source)


async def test_moving_state_survives_whoever_is_killed(running: ProcessCluster) -> None:
    source = await started(running)
    running.kill("split:C")
    await running.store.request(Relocate("mslb", SENDER, RECEIVER, ALL))
    await reached(running, "deactivating")
    await source.append(30)
    await restart(running, SENDER)
    # The receiver is not there when it is sent the groups, and tuples are buffered meanwhile.
    running.kill(RECEIVER)
    running.start("split:C")
    await reached(running, "moving")
    await restart(running, SENDER)
    await source.append(30)
    # What is buffered becomes old, and still has its partners.
    await source.pass_by(2)
    running.kill("split:C")
    running.start(RECEIVER)
    await reached(running, "reactivating")
    # It has the groups from a message that is gone, and makes them anew from the logs.
    await restart(running, RECEIVER)
    await restart(running, "manager")
    await restart(running, "split:A")
    await source.append(30)
    running.start("split:C")
    await reached(running, "done")
    await source.append(30)
    await restart(running, RECEIVER)
    await source.append(30)
    await check(running, source)
    (relocation,) = await running.relocations()
    assert relocation["partitions"] == [0, 1, 2]
    assert relocation["moved"] > 0


async def test_a_parallel_track_can_be_given_up(running: ProcessCluster) -> None:
    source = await started(running)
    await running.store.request(Relocate("ptlb", SENDER, RECEIVER, ALL))
    await reached(running, "duplicating")
    await source.append(60)
    running.kill(RECEIVER)
    await running.store.request(Cancel(1))
    # What the receiver alone could emit it still has to.
    await reached(running, "stopping")
    await source.append(30)
    running.start(RECEIVER)
    await reached(running, "cancelled")
    await source.append(30)
    await check(running, source)


async def test_moving_state_can_be_given_up_until_it_is_shipped(running: ProcessCluster) -> None:
    source = await started(running)
    running.kill("split:C")
    await running.store.request(Relocate("mslb", SENDER, RECEIVER, ALL))
    await reached(running, "deactivating")
    await source.append(30)
    await running.store.request(Cancel(1))
    await reached(running, "resuming")
    running.start("split:C")
    await reached(running, "cancelled")
    await restart(running, SENDER)
    await source.append(30)
    await check(running, source)


async def test_of_two_processes_that_run_one_worker_one_commits(running: ProcessCluster) -> None:
    source = Source(running)
    running.start("manager", "split:A", "split:B", "split:C", RECEIVER, key="others")
    running.start(SENDER, key="one")
    running.start(SENDER, key="other")
    for _ in range(10):
        await source.append(30)
    await check(running, source)
