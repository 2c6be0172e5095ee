"""A replica that carries out transactions of a history, and is killed at a step of one of them.

Run as a program, with a JSON object in its arguments: `systems`, `catalogue_url`, `database`,
`objects`, `seed`, and the step `name`, before or `after` which it is killed. It prints JSON lines
for each transaction before it is sent, and another one once it is acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import orjson
import pytest

from mediator.stores.port import SystemConfig
from tests.process.service import service
from tests.process.transactions.crashable import CrashPoint, make_crashable
from tests.process.transactions.histories import Attempt, History

SURVIVED = 3
"""Transactions that it carries out before."""


@dataclass
class KillAt(CrashPoint):
    """Kills its process at the first step of a name."""

    name: str = ""

    async def run_step(self, name: str, send: Callable[[], Awaitable[Any]]) -> Any:
        """Run a step, or kill the process."""
        self.taken.append(name)
        is_last = name == self.name and self.taken.count("begin") > SURVIVED
        if is_last and not self.after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = await send()
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return result


def _print_attempt(attempt: Attempt) -> None:
    sys.stdout.buffer.write(orjson.dumps(attempt.dump()) + b"\n")
    sys.stdout.buffer.flush()


async def _work(setup: dict[str, Any]) -> None:
    configs = [SystemConfig(**config) for config in setup["systems"]]
    async with service(configs, setup["catalogue_url"]) as running:
        with pytest.MonkeyPatch.context() as patched:
            make_crashable(running.mediator, patched)
            kill = KillAt(0, setup["after"], name=setup["name"])
            history = History(running, setup["database"], random.Random(setup["seed"]))
            history.objects = [(class_name, id_) for class_name, id_ in setup["objects"]]
            history.kill_point, history.notify = kill, _print_attempt
            while True:
                await history.transact(crashable=False)


if __name__ == "__main__":
    asyncio.run(_work(orjson.loads(sys.argv[1])))
