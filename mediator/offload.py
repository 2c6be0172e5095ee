"""Long computations, beside the event loop: in threads, which leave it every few milliseconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

__all__ = ["is_large", "offload"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

_THREADS: Final = ThreadPoolExecutor(4, "portolan-computing")
"""Few, and not those of the event loop: looking up a host's name must not wait for a filter."""

_LARGE: Final = 1_000
"""Values within values from which on to convert them may take more than about a millisecond."""


async def offload(
    is_long: bool, compute: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
) -> _T:
    """Return what a function computes; where that takes long, a thread does it.

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
    return await asyncio.get_running_loop().run_in_executor(_THREADS, call)


def is_large(value: Any) -> bool:
    """Whether a value has many values within it; looks at no more of it than it takes to say so."""
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
