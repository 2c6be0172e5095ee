"""Interruption by a signal, and closing within a bound."""

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
"""Seconds that connections to systems get to be closed, whatever these do. What is left behind then
is what a crash would leave, which others find."""


class Interrupted(Exception):
    """A signal ended the service while something else was under way."""


class NotClosed(Exception):
    """Some system kept a process from closing its connections in time.

    The cause is the error that ended what it did before, if one did.
    """


@contextlib.asynccontextmanager
async def closing(
    close: Callable[[], Coroutine[Any, Any, None]], within_s: float = CLOSED_WITHIN_S
) -> AsyncIterator[None]:
    """Run the block, and then close what it used, within a bound.

    Raises:
        NotClosed: The bound has passed; what is late is left behind.
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
    # A deadline of now: the timeout cancels the block.
    limit.reschedule(asyncio.get_running_loop().time())


def stopped_by_signal() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    return stopping
