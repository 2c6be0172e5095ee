"""Removing what has been remembered for long enough: page by page, until nothing is left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeAlias

from mediator.base.clock import Clock
from mediator.stores.guarded import GuardedStore
from mediator.stores.port import Reapable

__all__ = ["PAGE", "Reap", "reap_all", "reaps_of"]

PAGE: Final = 1_000
"""What one call removes at most."""

Reap: TypeAlias = Callable[[int], Awaitable[int]]
"""Removes up to so many of what is due; returns how many."""


async def reap_all(reaps: Callable[[], Sequence[Reap]], clock: Clock) -> None:
    """Let each remove pages until none finds a full one.

    After each page they rest for as long as it took, so that half of the time is left to others.

    Args:
        reaps: Returns those that there are by then.
        clock: Measures the pages.

    Raises:
        Exception: What one of them has raised, once the others have nothing left.
    """
    while True:
        started_at = clock.monotonic()
        pages = [reap(PAGE) for reap in reaps()]
        results = await asyncio.gather(*pages, return_exceptions=True)
        if not any(isinstance(removed, int) and removed >= PAGE for removed in results):
            break
        await asyncio.sleep(clock.monotonic() - started_at)
    for result in results:
        if isinstance(result, BaseException):
            raise result


def reaps_of(systems: Iterable[GuardedStore]) -> list[Reap]:
    """Return those of the stores that forget nothing by themselves."""
    return [
        partial(_reap_store, guarded, guarded.store)
        for guarded in systems
        if isinstance(guarded.store, Reapable)
    ]


async def _reap_store(guarded: GuardedStore, store: Reapable, limit: int) -> int:
    return await guarded.guarded(lambda: store.reap(limit))
