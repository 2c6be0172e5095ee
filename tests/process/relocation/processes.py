"""A cluster of real processes, which a test can kill in the middle of a step."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from redis.asyncio import Redis

from mediator.coordination.cluster_store import RedisClusterStore
from mediator.relocation.cluster import Declared
from mediator.relocation.messages import MANAGER
from mediator.relocation.participant import Participant
from tests.faults.operation.forked import FORKS
from tests.properties.relocation.scenario import Found

__all__ = ["ProcessCluster", "until"]


class ProcessCluster:
    """Participants in separate processes, by address."""

    def __init__(self, store: RedisClusterStore, name: str, url: str) -> None:
        self.store = store
        self.name = name
        self.url = url
        self.processes: dict[str, Any] = {}

    async def declare(self, declared: Declared) -> None:
        assert await self.store.declare(declared.model_dump())

    def start(self, *addresses: str, key: str | None = None) -> None:
        """Run participants in one process."""
        process = FORKS.Process(target=_run, args=(self.url, self.name, addresses), daemon=True)
        process.start()
        self.processes[key or addresses[0]] = process

    def kill(self, key: str) -> None:
        process = self.processes.pop(key)
        process.kill()
        process.join()

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.join()

    async def relocations(self) -> list[dict[str, Any]]:
        _, record = await self.store.recorded(MANAGER)
        relocations = [
            relocation for key, relocation in record.items() if key.startswith("relocation/")
        ]
        return sorted(relocations, key=lambda r: r["id"])

    async def count_results(self) -> Found:
        counts: Found = Counter()
        after = "0"
        while steps := await self.store.results(after, 1000):
            after = steps[-1][0]
            counts.update(
                (result["query"], tuple(sorted(result["numbers"].items())))
                for _, emitted in steps
                for result in emitted
            )
        return counts

    async def positions(self, relations: Sequence[str]) -> dict[str, int]:
        addresses = [f"split:{name}" for name in relations]
        positions = await self.store.field(addresses, "position")
        return {name: position or 0 for name, position in zip(relations, positions, strict=True)}


def _run(url: str, name: str, addresses: Sequence[str]) -> None:
    asyncio.run(_run_all(url, name, addresses))


async def _run_all(url: str, name: str, addresses: Sequence[str]) -> None:
    redis = Redis.from_url(url)  # whose replies can be late
    store = RedisClusterStore(redis, name)
    cluster = Declared.model_validate(await store.layout()).cluster()
    stopping = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for address in addresses:
            tasks.create_task(Participant(store, cluster, address).run(stopping))


async def until(condition: Callable[[], Awaitable[bool]], within_s: float = 120.0) -> None:
    """Wait for a condition, with a bound that is generous for slow machines."""
    async with asyncio.timeout(within_s):
        # Other processes change it.
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
