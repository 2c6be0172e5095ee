"""SIGKILL of replicas between every two steps of a transaction; the history stays serializable."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import pytest

from mediator.stores.port import SystemConfig
from tests.faults.operation.forked import FORKS
from tests.faults.writes.killed_replica import Setup, run
from tests.process.service import Service, scratch_catalogue, scratch_systems, service
from tests.process.transactions.histories import CLASSES, Attempt, History
from tests.process.transactions.serializability import cycle_in

KILLS = {
    "some intents set": ("lock", True),
    "intents set": ("record_states", False),
    "validated": ("commit", False),
    "committed": ("commit", True),
    "half applied": ("write", True),
    "applied": ("finish", False),
    "intents removed": ("finish", True),
}
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
    """A replica in a separate process, and the transactions that it reported."""

    def __init__(self, process: BaseProcess, reports: Connection) -> None:
        self._process = process
        self._reports = reports
        self.attempts: dict[str, Attempt] = {}
        self.started = asyncio.Event()

    @classmethod
    def start(cls, history: History, kill_name: str, seed: int) -> Replica:
        name, after = KILLS[kill_name]
        setup = Setup(
            [*history.mediator.configs.values()],
            history.mediator.catalogue_url,
            history.database,
            history.objects,
            seed,
            name,
            after,
        )
        reports, child_end = FORKS.Pipe(duplex=False)
        process = FORKS.Process(target=run, args=(setup, child_end), daemon=True)
        process.start()
        child_end.close()
        return cls(process, reports)

    async def end(self, threads: ThreadPoolExecutor) -> None:
        """Collect its reports until it is killed."""
        loop = asyncio.get_running_loop()
        with suppress(EOFError):
            while True:
                attempt: Attempt = await loop.run_in_executor(threads, self._reports.recv)
                self.attempts[attempt.operation] = attempt
                self.started.set()
        self.started.set()
        await loop.run_in_executor(threads, self._process.join)
        assert self._process.exitcode == -signal.SIGKILL

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self._reports.close()


@pytest.mark.timeout(300)
async def test_replicas_killed_between_any_two_steps_leave_a_serializable_history(
    bank: Service,
) -> None:
    history = History(bank, await bank.put_schema(CLASSES), random.Random(1))
    await history.begin(per_class=2)
    replicas: Sequence[Replica] = ()
    threads = ThreadPoolExecutor(len(KILLS))
    try:
        replicas = [Replica.start(history, name, seed) for seed, name in enumerate(KILLS)]
        ends = [asyncio.create_task(replica.end(threads)) for replica in replicas]
        await asyncio.gather(*(replica.started.wait() for replica in replicas))
        while not all(task.done() for task in ends):
            await asyncio.gather(*(history.work(OPERATIONS) for _ in range(WORKERS)))
        await asyncio.gather(*ends)
    finally:
        for replica in replicas:
            replica.kill()
        threads.shutdown()
    for replica in replicas:
        assert replica.attempts
        for attempt in replica.attempts.values():
            await history.find_out(attempt)
    assert cycle_in(history.executed) is None
    await history.check_end()
