"""Removing entries past their retention: page by page, until none are left."""

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
"""Limit of entries that one call removes."""

Reap: TypeAlias = Callable[[int], Awaitable[int]]
"""Removes up to a limit of entries past their retention; returns how many."""


async def reap_all(reaps: Callable[[], Sequence[Reap]], clock: Clock) -> None:
    """Run all reaps page by page until none removes a full page.

    After each page they pause for as long as it took, which leaves half of the time to other work.

    Args:
        reaps: Returns the current reaps.
        clock: Measures the pages.

    Raises:
        Exception: The error of one reap, once the others are done.
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
    """Return the reaps of the stores that expire no records themselves."""
    return [
        partial(_reap_store, guarded, guarded.store)
        for guarded in systems
        if isinstance(guarded.store, Reapable)
    ]


async def _reap_store(guarded: GuardedStore, store: Reapable, limit: int) -> int:
    return await guarded.guarded(lambda: store.reap(limit))
