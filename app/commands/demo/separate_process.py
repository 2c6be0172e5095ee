"""A separate process for load, started once and used many times."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from types import TracebackType
from typing import Self, TypeVar

__all__ = ["SeparateProcess"]

T = TypeVar("T")


class SeparateProcess:
    """Calls functions in a separate process, while it is entered."""

    def __init__(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        # Ctrl-C reaches every process of the terminal; who uses this one ends it.
        ignore = (signal.SIGINT, signal.SIG_IGN)
        self._pool = ProcessPoolExecutor(1, spawn, signal.signal, ignore)

    async def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Return what a function returns there; raises what it raises."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, function, *arguments)

    async def __aenter__(self) -> Self:
        # Spawning and importing takes a second, which nothing that is measured should see.
        await self.call(int)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(wait=error is None, cancel_futures=True)
