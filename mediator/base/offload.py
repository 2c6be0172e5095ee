"""Long computations in threads, which leave the interpreter to the event loop now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import local
from time import sleep, thread_time
from typing import Any, Final, ParamSpec, TypeVar

__all__ = ["is_large", "offload", "throttle", "throttled"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

_THREADS: Final = ThreadPoolExecutor(4, "portolan-computing")
"""Few, and not those of the event loop: DNS look-ups must not wait for a filter."""

_SLICE_S: Final = 0.0001
"""Seconds that a thread computes at once.

Each time that the event loop has waited for a socket it waits for the interpreter as well, for the
switch interval at most (`app.service.interpreter`). In a slice that is not much longer than that a
request waits once or twice."""

_SLEEP_RATIO: Final = 6
"""Seconds that a thread sleeps for each that it has computed."""


class _ThreadState(local):
    slept_s: float | None = None
    """Processor time that this thread had used when it slept last; None: it does not compute."""


_state = _ThreadState()

_LARGE: Final = 1_000
"""Values within values from which on to convert them may take more than about a millisecond."""


async def offload(
    is_long: bool, compute: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
) -> _T:
    """Return what a function computes; a thread computes it if that takes long.

    The interpreter runs one thread at a time, and changes to another after 5 ms at most, so that
    the event loop goes on. A single call into C is not interrupted: its argument must be bounded.

    Args:
        is_long: Whether it may take more than about a millisecond.
        compute: The function; it must not touch what the event loop works on.
        args: Its arguments.
        kwargs: Its arguments by name.
    """
    if not is_long:
        return compute(*args, **kwargs)
    call = partial(compute, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_THREADS, _computed, call)


def throttle() -> None:
    """Sleep now and then, if a thread computes; to be called every hundred microseconds.

    A thread that computes all the time gets the interpreter every other time, so that requests take
    twice as long. Throttled, it gets a seventh of the time. On the event loop this does nothing.
    """
    if _state.slept_s is None:
        return
    used_s = thread_time() - _state.slept_s
    if used_s >= _SLICE_S:
        sleep(_SLEEP_RATIO * used_s)
        _state.slept_s = thread_time()


def throttled(items: Iterable[_T]) -> Iterator[_T]:
    for item in items:
        throttle()
        yield item


def _computed(call: Callable[[], _T]) -> _T:
    _state.slept_s = thread_time()
    try:
        return call()
    finally:
        _state.slept_s = None


def is_large(value: Any) -> bool:
    """Whether a value contains many values; stops as soon as it has counted enough."""
    count, pending = 0, [value]
    while pending:
        current = pending.pop()
        if isinstance(current, dict):
            inner: Any = current.values()
        elif isinstance(current, list | tuple):
            inner = current
        else:
            continue
        count += len(inner)
        if count > _LARGE:
            return True
        pending += inner
    return False
