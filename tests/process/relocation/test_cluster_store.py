"""The state of a cluster in Redis: bounded logs and queues, and each step once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from mediator.base.errors import TooManyRequests
from mediator.coordination import cluster_store
from mediator.coordination.cluster_store import RedisClusterStore
from mediator.coordination.connecting import connect
from mediator.coordination.scripts import RETRIED_S
from mediator.relocation.cluster import Cluster, make_cluster
from mediator.relocation.participant import Participant, addresses
from mediator.relocation.port import TakenOver
from mediator.relocation.split import LogEntry
from mediator.stores.port import SystemConfig
from tests.faults.holding import proxied
from tests.process.relocation.processes import ProcessCluster
from tests.properties.relocation.scenario import WINDOW_S, batch_join, workload_of


@pytest.fixture
async def redis(redis_config: SystemConfig, late_replies: None) -> AsyncIterator[Redis]:
    client = connect(redis_config.url)
    yield client
    await client.aclose()


@pytest.fixture
def name() -> str:
    return f"c{uuid4().hex[:12]}"


@pytest.fixture
async def store(redis: Redis, name: str) -> AsyncIterator[RedisClusterStore]:
    new_store = RedisClusterStore(redis, name)
    assert await new_store.declare({})
    yield new_store
    await redis.srem("portolan:clusters", name)
    async for key in redis.scan_iter(match=f"*{name}*"):
        await redis.delete(key)


def cluster() -> Cluster:
    return make_cluster(workload_of("AB"), [0, 1, 0, 1], 2, lateness_s=2.0)


class InProcess:
    """All participants of a cluster, step by step, in this process."""

    def __init__(self, store: RedisClusterStore) -> None:
        self.store = store
        self.cluster = cluster()
        self.participants: dict[str, Participant] = {}

    async def start(self, address: str) -> None:
        self.participants[address] = Participant(self.store, self.cluster, address)
        await self.participants[address].begin()

    async def run(self) -> None:
        """Step until no participant has any work."""
        for address in addresses(self.cluster):
            if address not in self.participants:
                await self.start(address)
        while any([await participant.step(0) for participant in self.participants.values()]):
            pass


async def test_logs_keep_what_windows_reach_and_no_more(store: RedisClusterStore) -> None:
    running, draw = InProcess(store), Random(3)
    history: dict[str, list[LogEntry]] = {"A": [], "B": []}
    for batch in range(30):
        for relation, entries in history.items():
            rows = []
            for step in range(50):
                time_s = batch * 2.5 + step / 20
                rows.append((time_s, {"k": draw.randrange(500)}))
                entries.append(LogEntry(len(entries) + 1, *rows[-1], time_s))
            await store.append(relation, rows)
        await running.run()
        # Each participant rebuilds its state, from logs that have just lost their beginning.
        for address in addresses(running.cluster):
            await running.start(address)
    window = 20 * WINDOW_S
    for relation in "AB":
        logged = await store.log(relation, 0, 10_000)
        assert window < len(logged) < 1_500 - window
    results = await ProcessCluster(store, "", "").count_results()
    assert results == batch_join(running.cluster.workload, history, keys=500)


async def test_a_split_waits_for_workers_that_are_behind(store: RedisClusterStore) -> None:
    running = InProcess(store)
    for address in ("split:A", "worker:0", "worker:1"):
        await running.start(address)
    split = running.participants["split:A"]
    for second in range(100):
        await store.append("A", [(float(second), {"k": 1})])
        await split.step(0)
    (position,) = await store.field(["split:A"], "position")
    assert position < 100
    await running.run()
    (position,) = await store.field(["split:A"], "position")
    assert position == 100


async def test_a_full_log_refuses_more(
    redis: Redis, store: RedisClusterStore, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_store, "_CONSTANTS", {"MAX_LOG_ENTRIES": 3, "MAX_RESULTS": 2})
    small = RedisClusterStore(redis, name)
    await small.layout()
    await small.append("A", [(1.0, {"k": 1}), (2.0, None)])
    with pytest.raises(TooManyRequests):
        await small.append("A", [(3.0, None), (4.0, None)])
    assert [entry.number for entry in await small.log("A", 0, 10)] == [1, 2]
    await store.append("A", [(0.5, {"k": 1})])
    assert (await store.log("A", 2, 10))[0] == LogEntry(3, 0.5, {"k": 1}, 2.0)


async def test_an_append_whose_reply_is_lost_is_done_once(
    redis_config: SystemConfig, redis: Redis, store: RedisClusterStore, name: str
) -> None:
    """The driver retries it; the same tuples in another append are new ones."""
    await store.append("A", [(1.0, {"k": 1})])
    async with proxied(redis_config) as (proxy, reached):
        client = connect(reached.url)
        writer = RedisClusterStore(client, name)
        await writer.layout()
        proxy.loses = True
        await writer.append("A", [(2.0, {"k": 2}), (3.0, None)])
        assert not proxy.loses
        await writer.append("A", [(2.0, {"k": 2})])
        await client.aclose()
    expected = [(1.0, {"k": 1}), (2.0, {"k": 2}), (3.0, None), (2.0, {"k": 2})]
    logged = await store.log("A", 0, 10)
    assert [(entry.time_s, entry.values) for entry in logged] == expected
    assert [entry.number for entry in logged] == [1, 2, 3, 4]
    keys = [key async for key in redis.scan_iter(match=f"*{name}*:append:*")]
    assert len(keys) == 3
    assert all([0 < await redis.pttl(key) <= RETRIED_S * 1000 for key in keys])


async def test_a_step_is_committed_by_one_process(store: RedisClusterStore) -> None:
    running = InProcess(store)
    one = Participant(store, running.cluster, "split:A")
    other = Participant(store, running.cluster, "split:A")
    await one.begin()
    await other.begin()
    await store.append("A", [(1.0, {"k": 1})])
    assert await one.step(0)
    with pytest.raises(TakenOver):
        await other.step(0)
    assert await store.waiting("split:A", ["worker:0", "worker:1"]) == 1
    await other.begin()
    assert not await other.step(0)
