"""Processes that the service starts, which end when the pipe to them does."""

from __future__ import annotations

import asyncio
import logging
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

__all__ = ["ended", "keep"]

_log = logging.getLogger("portolan.children")

_AGAIN_S: Final = 1.0


async def keep(name: str, run: Callable[[], Awaitable[None]]) -> None:
    """Run a process again whenever it ends, until cancelled; `run` returns when it has ended."""
    while True:
        try:
            await run()
        except OSError as error:
            _log.warning("%s cannot be started: %s", name, error)
        else:
            _log.warning("%s ended; it is started again", name)
        await asyncio.sleep(_AGAIN_S)


async def ended(process: Process, within_s: float) -> None:
    """Close the pipe to a process, so that it ends; kill it after `within_s` seconds."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(within_s):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
