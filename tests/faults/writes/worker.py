"""`portolan worker` in a separate process, to be killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress

import psutil

__all__ = ["WorkerProcess"]


class WorkerProcess:
    """A worker process.

    Args:
        environment: Its settings.
        arguments: Command-line arguments of `worker`.
    """

    def __init__(self, environment: Mapping[str, str], arguments: Iterable[str] = ()) -> None:
        self._arguments = tuple(arguments)
        self._environment = {**os.environ, **environment}
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """The id of the process."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Start it; return once it waits for runs."""
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "from app.cli import main; main()", "worker", *self._arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**self._environment, "PYTHONUNBUFFERED": "1"},
        )
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        assert b"waiting for runs" in line, line

    def kill_spark(self) -> None:
        """Kill its JVM, as the kernel does when memory runs out."""
        (jvm,) = [c for c in psutil.Process(self.pid).children() if c.name() == "java"]
        jvm.kill()

    async def kill(self) -> None:
        """Kill it as a crash would."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> int:
        """Stop it as an operator would; return its exit status."""
        return await self._end(signal.SIGTERM)

    async def _end(self, number: signal.Signals) -> int:
        assert self._process is not None
        with suppress(ProcessLookupError):
            self._process.send_signal(number)
        return await self._process.wait()
