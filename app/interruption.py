"""Ending early when the service is told to end, and ending at all."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

__all__ = ["Interrupted", "NotClosed", "interruptible"]


class Interrupted(Exception):
    """A signal ended the service while something else was under way."""


class NotClosed(Exception):
    """Some system kept the service from closing its connections in time."""


@contextlib.asynccontextmanager
async def interruptible(ended: asyncio.Event) -> AsyncIterator[None]:
    """Run the block until it is done, or until the event is set.

    Raises:
        Interrupted: The event was set first; what the block was doing is cancelled.
    """
    try:
        async with asyncio.timeout(None) as limit:
            watch = asyncio.create_task(_interrupt(ended, limit))
            try:
                yield
            finally:
                watch.cancel()
    except TimeoutError:
        if not limit.expired():
            raise
        raise Interrupted from None


async def _interrupt(ended: asyncio.Event, limit: asyncio.Timeout) -> None:
    await ended.wait()
    limit.reschedule(asyncio.get_running_loop().time())
