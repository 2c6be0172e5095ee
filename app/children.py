"""Processes that the service starts, which end when the pipe to them does."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process
from contextlib import suppress

__all__ = ["ended"]


async def ended(process: Process, within_s: float) -> None:
    """Close the pipe to a process, and wait; it has its time (seconds), and no more."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(within_s):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
