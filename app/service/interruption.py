"""Interruption by a signal, and closing within a time limit."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final

from mediator.base.concurrency import ended_within

__all__ = [
    "CLOSED_WITHIN_S",
    "Interrupted",
    "NotClosed",
    "closing",
    "interruptible",
    "stopped_by_signal",
]

CLOSED_WITHIN_S: Final = 10.0
"""Time limit for closing the connections to systems, in seconds. What remains after it is recovered
by others, as after a crash."""


class Interrupted(Exception):
    """A signal ended the service while another operation was in progress."""


class NotClosed(Exception):
    """A system kept a process from closing its connections in time.

    The cause is the error that ended the process's work, if any.
    """


@contextlib.asynccontextmanager
async def closing(
    close: Callable[[], Coroutine[Any, Any, None]], within_s: float = CLOSED_WITHIN_S
) -> AsyncIterator[None]:
    """Run the block, and then `close` its resources within a time limit.

    Raises:
        NotClosed: The time is over; what is still open is abandoned.
    """
    failure: BaseException | None = None
    try:
        yield
    except BaseException as error:
        failure = error
        raise
    finally:
        if not await ended_within(within_s, close()):
            raise NotClosed from failure


@contextlib.asynccontextmanager
async def interruptible(ended: asyncio.Event) -> AsyncIterator[None]:
    """Run the block until it ends, or until the event is set.

    Raises:
        Interrupted: The event was set first; the block was cancelled.
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
    # With a deadline of now, the timeout cancels the block.
    limit.reschedule(asyncio.get_running_loop().time())


def stopped_by_signal() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    return stopping
