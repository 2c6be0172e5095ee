"""Several calls at the same time, with as few tasks as that takes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from mediator.base.cancellation import end

__all__ = ["both", "concurrently"]

_T = TypeVar("_T")
_U = TypeVar("_U")


async def concurrently(work: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Await all to their end, and then raise what the first of them raised.

    The first runs in the caller's own task, so that it starts at once and needs no
    wake-up: with `asyncio.gather` each takes a task, and two more iterations of the event loop. If
    the caller is cancelled, so are all of them.
    """
    coroutines = iter(work)
    first = next(coroutines, None)
    if first is None:
        return []
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        return [await first, *[await task for task in tasks]]
    except asyncio.CancelledError:
        await end(tasks)
        raise
    except BaseException:
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def both(first: Coroutine[Any, Any, _T], second: Coroutine[Any, Any, _U]) -> tuple[_T, _U]:
    """Await two calls that answer differently; see `concurrently`."""
    work: tuple[Coroutine[Any, Any, Any], ...] = (first, second)
    one, other = await concurrently(work)
    return one, other
