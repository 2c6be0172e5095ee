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
"""More rows than any worker has."""


@pytest.fixture
async def running(redis_config: SystemConfig, late_replies: None) -> AsyncIterator[ProcessCluster]:
    """A cluster whose participants do not run yet."""
    name = f"c{uuid4().hex[:12]}"
    redis = connect(redis_config.url)
    cluster = ProcessCluster(RedisClusterStore(redis, name), name, redis_config.url)
    queries = document(dict.fromkeys(RELATIONS, "k"))
    queries["queries"] = {"all": query(dict.fromkeys(RELATIONS, "k"), WINDOW_S)}
    await cluster.declare(
        Declared(queries=queries, workers=2, owners=[0, 0, 0, 1], lateness_s=2.0, adaptive=False)
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
        """Let time pass: only heartbeats arrive."""
        self.time_s += windows * WINDOW_S
        for relation in RELATIONS:
            await self._log(relation, self.time_s, None)

    async def _log(self, relation: str, time_s: float, values: Mapping[str, Any] | None) -> None:
        await self.cluster.store.append(relation, [(time_s, values)])
        latest_s = max(self._latest_s.get(relation, time_s), time_s)
        self._latest_s[relation] = latest_s
        entries = self.history[relation]
        entries.append(LogEntry(len(entries) + 1, time_s, values, latest_s))

    async def is_read(self) -> bool:
        """Return whether the splits have read all entries."""
        positions = await self.cluster.positions(RELATIONS)
        return all(positions[name] == len(self.history[name]) for name in RELATIONS)


async def wait_until_processed(cluster: ProcessCluster, source: Source) -> None:
    """Wait until every worker has seen the latest watermark of every relation."""

    async def is_done() -> bool:
        if not await source.is_read():
            return False
        latest = {name: source._latest_s[name] - 2.0 for name in RELATIONS}  # noqa: SLF001
        watermarks = await cluster.store.field([SENDER, RECEIVER], "watermarks")
        return all(worker_watermarks == latest for worker_watermarks in watermarks)

    await until(is_done)


async def wait_for_phase(cluster: ProcessCluster, phase: str) -> None:
    async def is_reached() -> bool:
        relocations = await cluster.relocations()
        return bool(relocations) and relocations[-1]["phase"] == phase

    await until(is_reached)


async def restart(cluster: ProcessCluster, address: str) -> None:
    cluster.kill(address)
    cluster.start(address)


async def check(cluster: ProcessCluster, source: Source) -> None:
    await wait_until_processed(cluster, source)
    expected = batch_join(workload_of(RELATIONS), source.history)
    assert expected.total() > 100
    assert await cluster.count_results() == expected


async def start_all(running: ProcessCluster) -> Source:
    for address in (*SPLITS, SENDER, RECEIVER, "manager"):
        running.start(address)
    source = Source(running)
    await source.append(120)
    await wait_until_processed(running, source)
    return source


async def test_a_parallel_track_survives_whoever_is_killed(running: ProcessCluster) -> None:
    source = await start_all(running)
    running.kill("split:C")
    await running.store.request(Relocate("ptlb", SENDER, RECEIVER, ALL))
    await wait_for_phase(running, "duplicating")
    # Two splits have switched, or will soon; the third one still sends old tuples.
    await source.append(30)
    await restart(running, SENDER)
    await source.append(30)
    running.start("split:C")
    await source.append(30)
    await restart(running, RECEIVER)
    await wait_until_processed(running, source)
    running.kill("manager")
    await source.pass_by(1.5)

    async def is_purged() -> bool:
        (relocations,) = await running.store.field([SENDER], "relocations")
        return bool(relocations == [0, 1])

    await until(is_purged)
    running.kill(SENDER)
    running.start("manager")
    await wait_for_phase(running, "deleting")
    await source.append(30)
    running.start(SENDER)
    await wait_for_phase(running, "done")
    await source.append(30)
    await restart(running, RECEIVER)
    await source.append(30)
    await check(running, source)


async def test_moving_state_survives_whoever_is_killed(running: ProcessCluster) -> None:
    source = await start_all(running)
    running.kill("split:C")
    await running.store.request(Relocate("mslb", SENDER, RECEIVER, ALL))
    await wait_for_phase(running, "deactivating")
    await source.append(30)
    await restart(running, SENDER)
    # The receiver is down when the groups are sent to it; tuples are buffered meanwhile.
    running.kill(RECEIVER)
    running.start("split:C")
    await wait_for_phase(running, "moving")
    await restart(running, SENDER)
    await source.append(30)
    # Buffered tuples become old, and still have their partners.
    await source.pass_by(2)
    running.kill("split:C")
    running.start(RECEIVER)
    await wait_for_phase(running, "reactivating")
    # It has the groups from a message that is gone, and rebuilds them from the logs.
    await restart(running, RECEIVER)
    await restart(running, "manager")
    await restart(running, "split:A")
    await source.append(30)
    running.start("split:C")
    await wait_for_phase(running, "done")
    await source.append(30)
    await restart(running, RECEIVER)
    await source.append(30)
    await check(running, source)
    (relocation,) = await running.relocations()
    assert relocation["partitions"] == [0, 1, 2]
    assert relocation["moved"] > 0


async def test_a_parallel_track_can_be_given_up(running: ProcessCluster) -> None:
    source = await start_all(running)
    await running.store.request(Relocate("ptlb", SENDER, RECEIVER, ALL))
    await wait_for_phase(running, "duplicating")
    await source.append(60)
    running.kill(RECEIVER)
    await running.store.request(Cancel(1))
    # The receiver still has to emit the results that it alone can.
    await wait_for_phase(running, "stopping")
    await source.append(30)
    running.start(RECEIVER)
    await wait_for_phase(running, "cancelled")
    await source.append(30)
    await check(running, source)


async def test_moving_state_can_be_given_up_until_it_is_shipped(running: ProcessCluster) -> None:
    source = await start_all(running)
    running.kill("split:C")
    await running.store.request(Relocate("mslb", SENDER, RECEIVER, ALL))
    await wait_for_phase(running, "deactivating")
    await source.append(30)
    await running.store.request(Cancel(1))
    await wait_for_phase(running, "resuming")
    running.start("split:C")
    await wait_for_phase(running, "cancelled")
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
