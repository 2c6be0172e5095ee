"""Child processes of the service, which end when the pipe to them closes."""

from __future__ import annotations

import asyncio
import logging
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

__all__ = ["keep_running", "stop_process"]

_log = logging.getLogger("portolan.children")

_RESTART_PAUSE_S: Final = 1.0


async def keep_running(name: str, run: Callable[[], Awaitable[None]]) -> None:
    """Restart a process whenever it ends, until cancelled; `run` returns when it has ended."""
    while True:
        try:
            await run()
        except OSError as error:
            _log.warning("%s cannot be started: %s", name, error)
        else:
            _log.warning("%s ended; it is started again", name)
        await asyncio.sleep(_RESTART_PAUSE_S)


async def stop_process(process: Process, within_s: float) -> None:
    """Close the pipe to a process, which ends it; kill it after `within_s` seconds."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(within_s):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
