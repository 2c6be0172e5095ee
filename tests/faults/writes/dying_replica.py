"""A replica that carries out transactions of a history, and is killed at a step of one of them.

Run as a program, with a JSON object in its arguments: `systems`, `catalogue_url`, `database`,
`objects`, `seed`, and the step `name`, before or `after` which it dies. It prints a line of JSON
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
from tests.process.transactions.histories import Attempt, History
from tests.process.transactions.mortal import Fate, make_mortal

IMMORTAL = 3
"""Transactions that it carries out before."""


@dataclass
class Doom(Fate):
    """Dies, process and all, at the first step of a name."""

    name: str = ""

    async def meet(self, name: str, send: Callable[[], Awaitable[Any]]) -> Any:
        """Take a step, or die."""
        self.taken.append(name)
        is_last = name == self.name and self.taken.count("begin") > IMMORTAL
        if is_last and not self.after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = await send()
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return result


def _tell(attempt: Attempt) -> None:
    sys.stdout.buffer.write(orjson.dumps(attempt.dump()) + b"\n")
    sys.stdout.buffer.flush()


async def _live(told: dict[str, Any]) -> None:
    configs = [SystemConfig(**config) for config in told["systems"]]
    async with service(configs, told["catalogue_url"]) as running:
        with pytest.MonkeyPatch.context() as patched:
            make_mortal(running.mediator, patched)
            doom = Doom(0, told["after"], name=told["name"])
            history = History(running, told["database"], random.Random(told["seed"]))
            history.objects = [(class_name, id_) for class_name, id_ in told["objects"]]
            history.doom, history.tell = doom, _tell
            while True:
                await history.transact(mortal=False)


if __name__ == "__main__":
    asyncio.run(_live(orjson.loads(sys.argv[1])))
