"""Closing of replaced stores, once nothing can be using them.

A caller uses a store for one call, which is bounded by the store's deadline; a write calls the
guard before, which is bounded as well. So a replaced store is left open for both together, and no
call is cut off.
"""

from __future__ import annotations

import asyncio
from typing import Final

from mediator.base.concurrency import end
from mediator.stores.port import Store

__all__ = ["Retirement"]

BEFORE_S: Final = 10.0
"""What passes at most between finding a store and calling it."""


class Retirement:
    """Stores that are about to be closed."""

    def __init__(self) -> None:
        self._leaving: dict[asyncio.Task[None], Store] = {}

    def retire(self, store: Store) -> None:
        """Close a store that nobody can find any more, after a while."""
        task = asyncio.create_task(_close(store))
        self._leaving[task] = store
        task.add_done_callback(lambda done: self._leaving.pop(done, None))

    async def close(self) -> None:
        """Close all of them now."""
        leaving = dict(self._leaving)
        await end(leaving)
        await asyncio.gather(*(store.close() for store in leaving.values()))


async def _close(store: Store) -> None:
    await asyncio.sleep(BEFORE_S + store.config.deadline_s)
    await store.close()
