"""Concurrent calls with few tasks, their results, and their cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, ParamSpec, TypeVar

from mediator.base.errors import MediatorError

__all__ = [
    "both",
    "by_system",
    "concurrently",
    "end",
    "ended_within",
    "result_or_error",
    "result_or_raise",
    "results_or_raise",
]

_T = TypeVar("_T")
_U = TypeVar("_U")


async def concurrently(work: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Await all to their end, and then raise the first error.

    Cancelling the caller cancels all.
    """
    coroutines = iter(work)
    first = next(coroutines, None)
    if first is None:
        return []
    # The first runs in the caller's own task: with `asyncio.gather` it would take a task as well,
    # and two more iterations of the event loop.
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
    work: tuple[Coroutine[Any, Any, Any], ...] = (first, second)
    first_result, second_result = await concurrently(work)
    return first_result, second_result


async def by_system(
    items: Sequence[_T],
    system_of: Callable[[_T], str],
    send: Callable[[str, Sequence[_T]], Awaitable[Sequence[_U]]],
) -> list[_U | MediatorError]:
    """Send each system its items, all systems concurrently; returns a result for each item.

    If `send` raises a `MediatorError`, the items of that system get it as their result.
    """
    names = dict.fromkeys(map(system_of, items))

    async def send_one(name: str) -> Sequence[_U | MediatorError]:
        system_items = (
            items if len(names) == 1 else [item for item in items if system_of(item) == name]
        )
        try:
            return await send(name, system_items)
        except MediatorError as error:
            return [error] * len(system_items)

    if len(names) == 1:
        return list(await send_one(*names))
    results = dict(zip(names, map(iter, await concurrently(map(send_one, names))), strict=True))
    return [next(results[system_of(item)]) for item in items]


_P = ParamSpec("_P")


def result_or_raise(result: _T | MediatorError) -> _T:
    if isinstance(result, MediatorError):
        raise result
    return result


def results_or_raise(results: Iterable[_T | MediatorError]) -> list[_T]:
    return [result_or_raise(result) for result in results]


async def result_or_error(
    function: Callable[_P, Awaitable[_T]], *args: _P.args, **kwargs: _P.kwargs
) -> _T | MediatorError:
    try:
        return await function(*args, **kwargs)
    except MediatorError as error:
        return error


RETRY_S: Final = 1.0


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait until they have ended."""
    pending = set(tasks)
    while pending:
        # Repeatedly: a driver may lose a cancellation in its own timeouts.
        for task in pending:
            task.cancel()
        ended, pending = await asyncio.wait(pending, timeout=RETRY_S)
        for task in ended:
            if not task.cancelled():
                task.exception()  # retrieved, or asyncio would log it


async def ended_within(seconds: float, ending: Coroutine[Any, Any, None]) -> bool:
    """Await a shutdown for at most `seconds`; returns whether it has ended."""
    task = asyncio.create_task(ending)
    _, late = await asyncio.wait({task}, timeout=seconds)
    if late:
        # Not awaited: it may lose the cancellation.
        task.cancel()
        return False
    task.result()
    return True
