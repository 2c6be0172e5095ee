"""Long computations in threads that regularly yield the interpreter to the event loop."""

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
"""Few, and separate from those of the event loop: DNS look-ups must not wait for a filter."""

_SLICE_S: Final = 0.0001
"""Seconds that a thread computes without a pause.

Each time the event loop has waited for a socket it also waits for the interpreter, for the switch
interval at most (`app.service.interpreter`). In a slice not much longer than that, a request waits
once or twice."""

_SLEEP_RATIO: Final = 6
"""Seconds that a thread sleeps per second of computing."""


class _ThreadState(local):
    slept_s: float | None = None
    """Processor time of this thread at its last sleep; None: it does not compute."""


_state = _ThreadState()

_LARGE: Final = 1_000
"""Nested values from which a conversion may take more than about a millisecond."""


async def offload(
    is_long: bool, compute: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
) -> _T:
    """Call a function, in a thread if it takes long.

    The interpreter runs one thread at a time, and switches after 5 ms at most, so the event loop
    continues. A single call into C is not interrupted: its argument must be bounded.

    Args:
        is_long: Whether it may take more than about a millisecond.
        compute: The function; it must not touch data of the event loop.
        args: Its arguments.
        kwargs: Its arguments by name.
    """
    if not is_long:
        return compute(*args, **kwargs)
    call = partial(compute, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_THREADS, _run_throttled, call)


def throttle() -> None:
    """Pause a computing thread regularly; call it every hundred microseconds.

    A thread that computes all the time gets the interpreter every other time, so requests take
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


def _run_throttled(call: Callable[[], _T]) -> _T:
    _state.slept_s = thread_time()
    try:
        return call()
    finally:
        _state.slept_s = None


def is_large(value: Any) -> bool:
    """Whether a value contains many values; stops counting beyond the limit."""
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
