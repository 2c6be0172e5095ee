"""SIGKILL of replicas between every two steps of a transaction; the history stays serializable."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import orjson
import pytest

from mediator.stores.port import SystemConfig
from tests.process.service import Service, scratch_catalogue, scratch_systems, service
from tests.process.transactions.histories import CLASSES, Attempt, History
from tests.process.transactions.serializability import cycle_in

KILLS = {
    "half marked": ("lock", True),
    "marked": ("record_states", False),
    "validated": ("commit", False),
    "committed": ("commit", True),
    "half applied": ("write", True),
    "applied": ("finish", False),
    "cleared": ("finish", True),
}
MEMBERS = ("name", "kind", "url", "durability", "deadline_s", "namespace", "pool_size")
WORKERS, OPERATIONS = 3, 8


@pytest.fixture
async def bank(
    redis_config: SystemConfig, postgresql_config: SystemConfig, mongodb_config: SystemConfig
) -> AsyncIterator[Service]:
    async with (
        scratch_systems(redis_config, postgresql_config, mongodb_config) as systems,
        scratch_catalogue(postgresql_config) as catalogue,
        service([replace(config, pool_size=4) for config in systems], catalogue) as running,
    ):
        await running.favour()
        yield running


class Replica:
    """A replica in a process of its own, and what it printed of its transactions."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.attempts: dict[str, Attempt] = {}
        self.started = asyncio.Event()

    @classmethod
    async def start(cls, history: History, kill_name: str, seed: int) -> Replica:
        name, after = KILLS[kill_name]
        configs = history.mediator.configs.values()
        setup = {
            "systems": [{name: getattr(config, name) for name in MEMBERS} for config in configs],
            "catalogue_url": history.mediator.catalogue_url,
            "database": history.database,
            "objects": history.objects,
            "seed": seed,
            "name": name,
            "after": after,
        }
        arguments = ("-m", "tests.faults.writes.killed_replica", orjson.dumps(setup).decode())
        process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, stdout=asyncio.subprocess.PIPE
        )
        return cls(process)

    async def end(self) -> None:
        """Read its output until it is killed."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if line.endswith(b"\n"):
                attempt = Attempt.load(orjson.loads(line))
                self.attempts[attempt.operation] = attempt
            self.started.set()
        self.started.set()
        assert await self._process.wait() == -signal.SIGKILL

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


@pytest.mark.timeout(300)
async def test_replicas_killed_between_any_two_steps_leave_a_serializable_history(
    bank: Service,
) -> None:
    history = History(bank, await bank.put_schema(CLASSES), random.Random(1))
    await history.begin(per_class=2)
    replicas: Sequence[Replica] = ()
    try:
        starts = (Replica.start(history, kill_name, seed) for seed, kill_name in enumerate(KILLS))
        replicas = await asyncio.gather(*starts)
        ends = [asyncio.create_task(replica.end()) for replica in replicas]
        await asyncio.gather(*(replica.started.wait() for replica in replicas))
        while not all(task.done() for task in ends):
            await asyncio.gather(*(history.work(OPERATIONS) for _ in range(WORKERS)))
        await asyncio.gather(*ends)
    finally:
        for replica in replicas:
            await replica.kill()
    for replica in replicas:
        assert replica.attempts
        for attempt in replica.attempts.values():
            await history.find_out(attempt)
    assert cycle_in(history.executed) is None
    await history.check_end()
