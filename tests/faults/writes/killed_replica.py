"""A replica that executes transactions of a history until it is killed at a step of one."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import pytest

from mediator.stores.port import SystemConfig
from tests.process.service import service
from tests.process.transactions.crashable import CrashPoint, make_crashable
from tests.process.transactions.histories import History

__all__ = ["Setup", "run"]

TRANSACTIONS_BEFORE = 3
"""The number of transactions that it executes before."""


@dataclass
class KillAt(CrashPoint):
    """Kills its process at the first step named `name`."""

    name: str = ""

    async def run_step(self, name: str, send: Callable[[], Awaitable[Any]]) -> Any:
        """Run a step, or kill the process."""
        self.taken.append(name)
        is_last = name == self.name and self.taken.count("begin") > TRANSACTIONS_BEFORE
        if is_last and not self.after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = await send()
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return result


@dataclass(frozen=True)
class Setup:
    """The systems, the objects, and the step `name` before or `after` which to kill."""

    systems: list[SystemConfig]
    catalogue_url: str
    database: str
    objects: list[tuple[str, str]]
    seed: int
    name: str
    after: bool


def run(setup: Setup, attempts: Connection) -> None:
    """Execute transactions; report each attempt before it is sent, and again once acknowledged."""
    asyncio.run(_run(setup, attempts))


async def _run(setup: Setup, attempts: Connection) -> None:
    async with service(setup.systems, setup.catalogue_url) as running:
        with pytest.MonkeyPatch.context() as patched:
            make_crashable(running.mediator, patched)
            history = History(running, setup.database, random.Random(setup.seed))
            history.objects = setup.objects
            history.kill_point = KillAt(0, setup.after, name=setup.name)
            history.notify = attempts.send
            while True:
                await history.transact(crashable=False)
